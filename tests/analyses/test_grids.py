"""Grids of metrics over ranks and steps, and samples put to steps: against plain loops on drawn rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analyses import _grids
from diagnose.analyses._columns import NO_RANK
from diagnose.analyses._grids import grids
from diagnose.analyses.device_series import device_series
from diagnose.schema import INGESTED

NAMES = {"step_ms": ("step_time_ns", 1e6), "compute_time_ns": ("compute_time_ns", 1.0), "loss": None}
rows = st.tuples(
    st.sampled_from([*NAMES]), st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(0, 1)),
    st.one_of(st.none(), st.floats(-5, 5), st.just(math.nan), st.just(math.inf)),
)  # fmt: skip


def series(given_rows: list[tuple[Any, ...]]) -> pa.Table:
    names = ("metric", "rank", "step", "segment", "value")
    return INGESTED["series"].build({n: [row[i] for row in given_rows] for i, n in enumerate(names)})


@settings(deadline=None, max_examples=150)
@given(st.lists(rows, max_size=25), st.lists(rows, max_size=10), st.integers(1, 9))
def test_grids_against_a_loop(first: list[Any], second: list[Any], chunk: int) -> None:
    table = pa.concat_tables([series(first), series(second)])
    expected: dict[str, dict[tuple[int, tuple[int, int]], float]] = {}
    for name, rank, step, segment, value in [*first, *second]:
        known = NAMES[name]
        if known is not None and step is not None and value is not None and math.isfinite(value):
            place = NO_RANK if rank is None else rank, (segment or 0, step)
            expected.setdefault(known[0], {})[place] = value * known[1]

    before = _grids._CHUNK_ROWS
    _grids._CHUNK_ROWS = chunk
    try:
        found = grids(table, ("step_time_ns", "compute_time_ns"))
    finally:
        _grids._CHUNK_ROWS = before

    assert found.keys() == expected.keys()
    for metric, cells in expected.items():
        grid = found[metric]
        columns = list(zip(grid.segment.tolist(), grid.step.tolist(), strict=True))
        assert columns == sorted({place for _, place in cells}) and grid.ranks.tolist() == sorted({r for r, _ in cells})
        value = {
            (rank, column): grid.value[i, j]
            for i, rank in enumerate(grid.ranks.tolist()) for j, column in enumerate(columns)
            if not np.isnan(grid.value[i, j])
        }  # fmt: skip
        assert value == cells


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=12, unique=True), st.lists(st.integers(0, 60), max_size=20))
def test_a_sample_belongs_to_the_step_that_ends_next(ends: list[int], taken: list[int]) -> None:
    ends = sorted(ends)
    usual = float(np.median(np.diff(ends)))
    expected: dict[int, list[float]] = {}
    for at in taken:
        step = next((n for n, end in enumerate(ends) if end >= at), None)
        if step is not None and ends[step] - at <= 5 * usual:
            expected.setdefault(step, []).append(float(at))
    samples = INGESTED["samples"].build(
        {"device": [0] * len(taken), "ts_ns": taken, "zoned": [True] * len(taken),
         "metric": ["sm_clock_mhz"] * len(taken), "value": [float(at) for at in taken], "file": [0] * len(taken)}
    )  # fmt: skip
    steps = INGESTED["step_ends"].build(
        {"step": list(range(len(ends))), "ts_ns": ends, "zoned": [True] * len(ends), "segment": [0] * len(ends)}
    )

    found = {row["step"]: row["value"] for row in device_series(samples, steps).to_pylist()}

    assert found.keys() == expected.keys()
    assert all(math.isclose(value, np.mean(expected[step])) for step, value in found.items())
