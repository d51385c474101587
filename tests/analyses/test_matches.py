"""Which calls on different ranks are one: right pairs, no wrong ones, and a reason for the rest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses._instances import sorted_by
from diagnose.analyses.matches import matches
from fixtures.simulate.many_ranks import Faults, Shape, calls
from tests.analyses import many_ranks as many

SHAPE = Shape(tp=2, ep=2, dp=2, pp=2)
WORLD = range(SHAPE.world_size)
APART = {rank: (rank * 37 % 101 - 50) * 1_000_000 for rank in WORLD}
"""Clocks of the ranks, up to 50 ms apart."""


def matched(faults=None, *, shape=SHAPE, layers=30, seed=5, ranks=None, **how):
    columns = calls(shape, layers, seed, faults, with_seq=how.pop("with_seq", True))
    if ranks is not None:
        kept = np.isin(columns["rank"], ranks)
        columns = {name: values[kept] for name, values in columns.items()}
    table = many.calls(columns, **how)
    return matches(table, many.members(shape), many.files(shape)), columns


def levels(table):
    return set(table["level"].drop_null().cast(pa.string()).to_pylist()) - {"pair"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("how", "level"), [({"comm_id": True}, "comm_id"), ({}, "seq"), ({"with_seq": False}, "order")]
)
def test_every_level_finds_every_call(how, level, seed):
    table, columns = matched(Faults(offset_ns=APART), seed=seed, **how)
    assert many.right_and_wrong(table["match"], columns["truth"]) == (1.0, 0)
    assert levels(table) == {level}


@pytest.mark.parametrize("comm_id", [True, False])
@pytest.mark.parametrize("fault", ["doubled_ranks", "repeated_ranks", "restarted_ranks", "skipped_ranks"])
@pytest.mark.parametrize("ranks", [(3,), (0, 5), tuple(WORLD)])
def test_numbers_that_count_wrongly_pair_nothing_wrongly(fault, ranks, comm_id):
    table, columns = matched(Faults(offset_ns=APART, **{fault: ranks}), comm_id=comm_id)
    share, wrong = many.right_and_wrong(table["match"], columns["truth"])
    assert wrong == 0
    assert share >= 0.99


@pytest.mark.parametrize("how", [{}, {"comm_id": True}, {"with_seq": False}])
def test_lost_rows_cost_only_themselves(how):
    table, columns = matched(Faults(lost_ratio=0.01, offset_ns=APART), **how)
    share, wrong = many.right_and_wrong(table["match"], columns["truth"])
    assert wrong == 0 and share >= 0.99


def test_recordings_that_start_and_stop_elsewhere_share_their_middle():
    columns = calls(SHAPE, 30, 2, Faults(offset_ns=APART), with_seq=False)
    low, high = columns["truth"].max() // 5, columns["truth"].max() * 4 // 5
    early, late = columns["rank"] % 2 == 0, columns["rank"] % 3 == 0
    kept = ~(early & (columns["truth"] < low)) & ~(late & (columns["truth"] > high))
    columns = {name: values[kept] for name, values in columns.items()}
    table = matches(many.calls(columns), many.members(SHAPE), many.files(SHAPE))
    share, wrong = many.right_and_wrong(table["match"], columns["truth"])
    assert wrong == 0 and share >= 0.99


def test_one_rank_alone_has_nobody_to_match():
    table, _ = matched(ranks=[3])
    assert table["match"].null_count == table.num_rows
    assert set(table["reason"].cast(pa.string()).to_pylist()) == {"peers_absent", "no_counterpart"}  # p2p names a peer


def test_missing_ranks_leave_the_others_matched_and_counted():
    table, columns = matched(ranks=[r for r in WORLD if r != 6])
    assert many.right_and_wrong(table["match"], columns["truth"])[1] == 0
    lacking = columns["dim"] == "ep"
    seen, expected = (np.asarray(table[c].fill_null(-1))[lacking] for c in ("seen_count", "expected_count"))
    assert set(expected) == {2} and set(seen) == {-1, 2}
    data = columns["dim"] == "dp"
    assert {(4, 4), (3, 4)} == set(
        zip(
            np.asarray(table["seen_count"])[data].tolist(), np.asarray(table["expected_count"])[data].tolist(),
            strict=True,
        )
    )  # fmt: skip


def test_calls_without_a_group_are_one_group_only_where_they_end_together():
    table, columns = matched(shape=Shape(dp=8), named=False, with_seq=False)
    assert many.right_and_wrong(table["match"], columns["truth"]) == (1.0, 0)
    assert set(table["expected_count"].to_pylist()) == {8}
    table, columns = matched(named=False, with_seq=False)
    several = columns["op"] != "p2p"
    assert table["match"].filter(pa.array(several)).null_count == several.sum()
    assert set(table["reason"].filter(pa.array(several)).cast(pa.string()).to_pylist()) == {"inconsistent"}


def test_calls_that_differ_in_operation_or_size_are_not_one():
    columns = calls(Shape(dp=2), 20, 1)
    at = np.flatnonzero(columns["rank"] == 1)[:1]
    columns["size_bytes"][at] *= 2
    table = matches(many.calls(columns), many.members(Shape(dp=2)), many.files(Shape(dp=2)))
    assert many.right_and_wrong(table["match"], columns["truth"])[1] == 0
    assert table["match"][int(at[0])].as_py() is None


def test_one_name_for_two_groups_stays_two():
    shape = Shape(tp=2, dp=2)
    columns = calls(shape, 10, 1)
    columns = {name: values[columns["dim"] == "tp"] for name, values in columns.items()}
    named = many.members(shape)
    both = named.set_column(1, "group", pa.array(["tp"] * named.num_rows))
    both = both.filter(pa.array([r["group"].startswith("tp") for r in named.to_pylist()]))
    columns["group"] = np.array(["tp"] * len(columns["rank"]))
    table = matches(many.calls(columns), both, many.files(shape))
    assert many.right_and_wrong(table["match"], columns["truth"]) == (1.0, 0)


def test_sends_without_a_peer_say_so():
    columns = calls(Shape(pp=2), 10, 1)
    columns["peer"][:] = -1
    table = matches(many.calls(columns), many.members(Shape(pp=2)), many.files(Shape(pp=2)))
    assert set(table["reason"].cast(pa.string()).to_pylist()) == {"no_peer"}


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-(1 << 62), 1 << 62), st.integers(0, 5)), max_size=20))
def test_rows_are_sorted_as_numpy_does(rows):
    keys = np.array(rows, np.int64).reshape(-1, 3).T
    assert sorted_by(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
    assert sorted_by(keys[0]).tolist() == np.argsort(keys[0], kind="stable").tolist()


def test_nothing_in_nothing_out():
    empty = many.calls(calls(Shape(dp=2), 1, 1)).slice(0, 0)
    assert matches(empty, many.members(SHAPE), many.files(SHAPE)).num_rows == 0
