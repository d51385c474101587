"""Metrics over steps as grids: one row per rank, one column per step, not-a-number where nothing was logged.

Names are those of `diagnose.formulas.metrics`, whatever the log called them, in the unit of their suffix. Columns are
in order of training: by restart (`segment`), then step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers
from diagnose.formulas import metrics

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NO_RANK = -(1 << 30)
_SEGMENT_STEPS = 1 << 40


class Grid(NamedTuple):
    """One metric: ranks (NO_RANK where unknown), segments and steps of the columns, values (ranks x steps)."""

    metric: str
    ranks: Ints
    segment: Ints
    step: Ints
    value: Floats

    def over_ranks(self) -> Floats:
        """Median over the ranks that logged it, per step."""
        return over_ranks(self.value)


def grids(series: pa.Table, wanted: tuple[str, ...]) -> dict[str, Grid]:
    """Grids of the wanted canonical metrics that the series hold; where two names mean one metric, the first."""
    if not series.num_rows:
        return {}
    names, code = dictionary(series["metric"]), codes(series["metric"])
    rank, step = integers(series["rank"], NO_RANK), integers(series["step"], -1)
    segment = integers(series["segment"], 0)
    value = np.asarray(series["value"].fill_null(np.nan), np.float64)
    present = np.bincount(code[code >= 0], minlength=len(names)) > 0
    found: dict[str, Grid] = {}
    for number, name in enumerate(names):
        known = (name, 1.0) if metrics.is_canonical(name) else metrics.canonical(name)
        if known is None or known[0] not in wanted or known[0] in found or not present[number]:
            continue
        mine = (code == number) & np.isfinite(value) & (step >= 0) if present.sum() > 1 else np.isfinite(value)
        if mine.any():
            found[known[0]] = _grid(known[0], rank[mine], segment[mine], step[mine], value[mine] * known[1])
    return found


def _grid(metric: str, rank: Ints, segment: Ints, step: Ints, value: Floats) -> Grid:
    ranks, row = _distinct(rank)
    places, column = _distinct(segment * _SEGMENT_STEPS + step)
    grid = np.full((len(ranks), len(places)), np.nan)
    grid[row, column] = value
    return Grid(metric, ranks, places // _SEGMENT_STEPS, places % _SEGMENT_STEPS, grid)


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """Sorted distinct values and the place of each; by a table where they lie close together, which spares the sort."""
    low, high = int(values.min()), int(values.max())
    if high - low > max(1 << 20, 4 * len(values)):
        distinct, place = np.unique(values, return_inverse=True)
        return distinct, place
    seen = np.zeros(high - low + 1, bool)
    seen[values - low] = True
    places = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + low, places[values - low]


def aligned(grid: Grid, like: Grid, column: Ints | None = None) -> Floats:
    """Values of `grid` at the steps of `like` (or of some of its columns), NaN where it has none."""
    own, wanted = (g.segment * _SEGMENT_STEPS + g.step for g in (grid, like))
    wanted = wanted if column is None else wanted[column]
    if np.array_equal(own, wanted):
        return grid.value
    at = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
    values = grid.value[:, at]
    values[:, own[at] != wanted] = np.nan
    return values


def over_ranks(value: Floats) -> Floats:
    """Median over rows per column without those that are NaN; NaN where a column has nothing."""
    if len(value) == 1:
        only: Floats = value[0]
        return only
    if not np.isnan(value).any():
        whole: Floats = np.median(value, axis=0)
        return whole
    ordered = np.sort(value, axis=0)  # NaN goes last
    count = np.sum(~np.isnan(value), axis=0)
    columns = np.arange(value.shape[1])
    low, high = np.maximum(count - 1, 0) // 2, np.maximum(count, 1) // 2
    middle: Floats = (ordered[low, columns] + ordered[np.minimum(high, value.shape[0] - 1), columns]) / 2
    return middle
