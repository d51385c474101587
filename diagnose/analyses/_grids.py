"""Metrics over steps as grids: one row per rank, one column per step, not-a-number where nothing was logged.

Names are those of `diagnose.formulas.metrics`, whatever the log called them, in the unit of their suffix. Columns are
in order of training: by restart (`segment`), then step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.analyses._columns import NO_RANK, Ints, dictionary, integers
from diagnose.formulas import metrics

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_SEGMENT_STEPS = 1 << 40
_CHUNK_ROWS = 1 << 20


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


class _Piece(NamedTuple):
    """Rows of one metric in one chunk of the table."""

    rank: Ints
    place: Ints
    """Step, and the segment in front of it."""
    value: Floats


def grids(series: pa.Table, wanted: tuple[str, ...]) -> dict[str, Grid]:
    """Grids of the wanted canonical metrics that the series hold; where two names mean one metric, the first.

    The table is looked at chunk by chunk, so that beside the grids only one metric's step numbers are held.
    """
    if not series.num_rows:
        return {}
    columns = series.select(["metric", "rank", "step", "segment", "value"]).unify_dictionaries()
    names = dictionary(columns["metric"])
    batches = columns.to_batches(max_chunksize=_CHUNK_ROWS)
    present = [_present(batch["metric"], len(names)) for batch in batches]
    order = np.flatnonzero(np.any(present, axis=0)).tolist()
    found: dict[str, Grid] = {}
    for number in order:
        known = (names[number], 1.0) if metrics.is_canonical(names[number]) else metrics.canonical(names[number])
        if known is None or known[0] not in wanted or known[0] in found:
            continue
        own = (_piece(batch, number, held) for batch, held in zip(batches, present, strict=True) if held[number])
        pieces = [piece for piece in own if len(piece.value)]
        if pieces:
            found[known[0]] = _grid(known[0], pieces, known[1])
    return found


def _present(metric: pa.DictionaryArray, count: int) -> Flags:
    """Which names a chunk has."""
    seen = np.zeros(count + 1, bool)
    seen[np.asarray(metric.indices.fill_null(count))] = True
    return seen[:count]


def _piece(batch: pa.RecordBatch, number: int, present: Flags) -> _Piece:
    """The chunk's rows of one metric that have a step and a finite value."""
    rank, step = integers(batch["rank"], NO_RANK), integers(batch["step"], -1)
    value = batch["value"]
    value = np.asarray(value.fill_null(np.nan) if value.null_count else value, np.float64)
    place = step
    if batch["segment"].null_count < len(batch) and np.any(segment := integers(batch["segment"], 0)):
        place = np.where(step >= 0, segment * _SEGMENT_STEPS + step, -1)
    kept = np.isfinite(value) & (place >= 0)
    if present.sum() > 1:
        kept &= np.asarray(batch["metric"].indices.fill_null(-1)) == number
    return _Piece(rank, place, value) if kept.all() else _Piece(rank[kept], place[kept], value[kept])


def _grid(metric: str, pieces: list[_Piece], factor: float) -> Grid:
    ranks, row_of = _distinct([piece.rank for piece in pieces])
    places, column_of = _distinct([piece.place for piece in pieces])
    grid = np.full((len(ranks), len(places)), np.nan)
    for piece in pieces:
        one = int(piece.rank[0])
        row = row_of(piece.rank[:1])[0] if (piece.rank == one).all() else row_of(piece.rank)
        grid[row, column_of(piece.place)] = piece.value if factor == 1.0 else piece.value * factor
    return Grid(metric, ranks, places // _SEGMENT_STEPS, places % _SEGMENT_STEPS, grid)


def _distinct(chunks: list[Ints]) -> tuple[Ints, Callable[[Ints], Ints]]:
    """Sorted distinct values, and what finds their places; a table where they lie close together spares the sort."""
    low, high = min(int(c.min()) for c in chunks), max(int(c.max()) for c in chunks)
    if high - low > max(1 << 20, 4 * sum(map(len, chunks))):
        distinct = np.unique(np.concatenate([np.unique(chunk) for chunk in chunks]))
        return distinct, lambda values: np.searchsorted(distinct, values)
    seen = np.zeros(high - low + 1, bool)
    for chunk in chunks:
        seen[chunk - low] = True
    places = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + low, lambda values: places[values - low]


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
