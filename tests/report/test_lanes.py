"""Drawable shapes: within the budget, every piece in exactly one shape, cut at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses import collectives, idle, kernels
from diagnose.report import _lanes

EMPTY = {"collectives": collectives.SCHEMA.empty(), "idle": idle.SCHEMA.empty()}


def _tables(spans: list[tuple[int, int]], **columns: Any) -> dict[str, pa.Table]:
    count = len(spans)
    rows = {
        "event_id": list(range(count)),
        "rank": [0] * count,
        "name": ["k"] * count,
        "class": ["compute"] * count,
        "ts_ns": [s for s, _ in spans],
        "dur_ns": [d for _, d in spans],
    }
    return {"kernels": kernels.SCHEMA.build(rows | columns), **EMPTY}


def test_long_pieces_keep_their_shape_and_short_ones_merge() -> None:
    drawing = _lanes.draw(_tables([(0, 500), (600, 1), (601, 1), (603, 1), (800, 200)]), 0, 0, 160_000, budget=100)

    assert drawing.pixel_ns == 100
    (shape,) = drawing.shapes
    assert shape["start_ns"].tolist() == [0, 600, 800]
    assert shape["dur_ns"].tolist() == [500, 4, 200]
    assert shape["hover"][1] == "3 × compute<br>3 ns in 4 ns"
    assert (drawing.pieces_count, drawing.merged_count) == (5, 3)


def test_work_is_cut_at_the_edges_and_other_ranks_stay_out() -> None:
    tables = _tables([(-50, 100), (900, 300), (2000, 5), (100, 50)], rank=[0, 0, 0, 1])
    drawing = _lanes.draw(tables, 0, 0, 1000, budget=100)

    (shape,) = drawing.shapes
    assert shape["start_ns"].tolist() == [0, 900]
    assert shape["dur_ns"].tolist() == [50, 100]


def test_communication_has_a_lane_per_dimension_and_unlisted_kernels_one_of_their_own() -> None:
    tables = _tables([(0, 100), (200, 100), (400, 100)], **{"class": ["comm"] * 3})
    tables["collectives"] = collectives.SCHEMA.build(
        {"event_id": [0, 1], "rank": [0, 0], "dim": ["dp", "tp"], "op": ["all_reduce"] * 2, "ts_ns": [0, 200],
         "dur_ns": [100, 100], "exposed_ns": [100, 0]}
    )  # fmt: skip
    drawing = _lanes.draw(tables, 0, 0, 1000, budget=100)

    assert drawing.lanes == ["TP comm", "DP comm", "comm, unknown"]
    assert drawing.shapes[0]["hover"] == ["<b>all_reduce</b><br>100 ns, 0 ns exposed, unknown"]


def test_names_cannot_close_a_tag() -> None:
    drawing = _lanes.draw(_tables([(0, 500)], name=["<b>x</b>&lt;"]), 0, 0, 1000, budget=10)

    assert drawing.shapes[0]["hover"][0].startswith("<b>&lt;b&gt;x&lt;/b&gt;&amp;lt;</b>")


@given(
    spans=st.lists(st.tuples(st.integers(0, 9_999), st.integers(1, 400)), min_size=1, max_size=200),
    budget=st.integers(5, 60),
)
def test_nothing_is_lost_and_the_budget_holds(spans: list[tuple[int, int]], budget: int) -> None:
    drawing = _lanes.draw(_tables(spans), 0, 0, 10_000, budget)
    (shape,) = drawing.shapes
    covered = np.zeros(10_000, bool)
    for start, dur in zip(shape["start_ns"], shape["dur_ns"], strict=True):
        covered[start : start + dur] = True

    assert drawing.pieces_count == len(spans)
    assert len(shape["dur_ns"]) <= budget
    assert all(covered[s : min(s + d, 10_000)].all() for s, d in spans)
