"""Injected clocks come back inside the stated error; without shared calls nothing is stated."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.analyses.clocks import clocks
from diagnose.analyses.matches import matches
from fixtures.simulate.many_ranks import Faults, Shape, calls
from tests.analyses import many_ranks as many

SHAPE = Shape(tp=2, ep=2, dp=2, pp=2)


def measured(faults, *, shape=SHAPE, layers=40, seed=3, dims=None):
    columns = calls(shape, layers, seed, faults)
    if dims is not None:
        columns = {name: values[np.isin(columns["dim"], dims)] for name, values in columns.items()}
    table = many.calls(columns)
    return clocks(table, matches(table, many.members(shape), many.files(shape))).to_pylist(), columns


def assert_inside(rows, columns, faults):
    """At the start, the middle and the end of the recording, a rank's time becomes its reference's, within the bar."""
    origin = 10**18
    span = int((columns["ts_ns"] + columns["dur_ns"]).max()) - origin - 60_000_000
    for row in rows:
        for moment in (0, span // 2, span):
            own, reference = (
                moment + faults.offset_ns.get(rank, 0) + faults.drift_ratio.get(rank, 0) * moment
                for rank in (row["rank"], row["reference"])
            )
            moved = own + row["offset_ns"] + (row["drift_ratio"] or 0) * (origin + own - row["at_ns"])
            assert abs(moved - reference) <= row["error_ns"] + 1, row


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("drifts", [False, True])
def test_offsets_and_drift_come_back_inside_the_bar(seed, drifts):
    random = np.random.default_rng(seed)
    offset = {r: int(v) for r, v in enumerate(random.integers(-50_000_000, 50_000_000, SHAPE.world_size))}
    drift = {r: float(v) for r, v in enumerate(random.uniform(-50e-6, 50e-6, SHAPE.world_size))}
    faults = Faults(offset_ns=offset, drift_ratio=drift if drifts else {})
    rows, columns = measured(faults, seed=seed, layers=120)
    assert {row["reference"] for row in rows} == {0}
    assert_inside(rows, columns, faults)
    assert max(row["error_ns"] for row in rows) < 300_000, "a bar that says something"
    assert max(row["error_ns"] for row in rows if row["rank"] < 8) < 50_000, "one stage shares collectives"


def test_equal_clocks_are_left_alone():
    rows, _ = measured(None)
    assert {row["offset_ns"] for row in rows} == {0}
    assert all(row["drift_ratio"] is None for row in rows)


def test_ranks_that_never_meet_have_different_references():
    rows, columns = measured(Faults(offset_ns={2: 7_000_000, 3: 7_000_000}), shape=Shape(tp=2, dp=2), dims=["tp"])
    assert [row["reference"] for row in rows] == [0, 0, 2, 2]
    assert_inside(rows, columns, Faults(offset_ns={2: 7_000_000, 3: 7_000_000}))


def test_a_rank_alone_gets_no_offset_but_a_reason():
    columns = calls(Shape(dp=2), 5, 1)
    table = many.calls({name: values[columns["rank"] == 1] for name, values in columns.items()})
    row = clocks(table, matches(table, many.members(Shape(dp=2)), many.files(Shape(dp=2)))).to_pylist()[0]
    assert row["offset_ns"] is None and row["error_ns"] is None and "shares no" in row["reason"]


def test_one_shared_call_is_only_as_good_as_its_transfer():
    rows, columns = measured(Faults(offset_ns={1: 9_000_000}), shape=Shape(dp=2), layers=1, dims=["dp"])
    kept = measured(Faults(offset_ns={1: 9_000_000}), shape=Shape(dp=2), layers=1)[1]
    assert len(kept["rank"]) == 4
    assert rows[1]["error_ns"] >= int(columns["dur_ns"].min()) // 2
    assert_inside(rows, columns, Faults(offset_ns={1: 9_000_000}))


def test_sends_and_receives_compare_stages_to_within_a_transfer():
    faults = Faults(offset_ns={1: -30_000_000})
    rows, columns = measured(faults, shape=Shape(pp=2), dims=["pp"])
    assert_inside(rows, columns, faults)
    assert rows[1]["error_ns"] >= int(columns["dur_ns"].min()) // 2
