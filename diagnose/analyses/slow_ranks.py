"""Ranks whose own work is longer than the other ranks', step after step, in records of every step (no trace needed).

A rank's own work is its step without what it was seen to wait in communication. Ranks of a job step together, so the
one that works longest is the one the others wait for: their communication grows, its own stays short. `lost_ns` is
what the step would gain if this rank came down to the next one. A rank that turned slow on the way leads in a part of
the run only (`slowdowns` is about those). Waiting that the records do not see counts as work, on
the ranks that wait, too: so only a rank whose lead the others' waiting confirms is `confirmed`.
Method: medians over the steps compared (`_job_steps`) of step minus communication, per rank against the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import NO_RANK, Ints
from diagnose.analyses._grids import Floats, Grid, aligned, grids
from diagnose.analyses._job_steps import NEEDED, job_steps
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, RANKS, table

SCHEMA = table(
    "rank with records of its steps and its communication",
    ("rank", INT32, "global rank"),
    ("ranks", RANKS, "the same, as a list"),
    ("steps_count", INT64, "steps compared: all ranks known, no warm-up, no stall"),
    ("step_ns", INT64, "a step of the job, median"),
    ("own_ns", INT64, "this rank's step without its communication, median"),
    ("others_ns", INT64, "the same of the other ranks together"),
    ("comm_ns", INT64, "this rank's communication, median"),
    ("others_comm_ns", INT64, "that of the other ranks together"),
    (
        "longest_ratio",
        FLOAT,
        "share of steps in which its own work is the longest, in the third of the run where it is least",
    ),
    ("lost_ns", INT64, "per step, how much longer it works than the next rank, mean over steps; 0 where it does not"),
    ("part", LABEL, "input | gc | checkpoint, where most of the difference is; null: not told"),
    ("part_ns", INT64, "of the difference, in that part"),
    ("confirmed", BOOL, "the others wait longer than it does, by half of the difference or more"),
    ("ranks_count", INT32, "ranks compared"),
)

LEAST_STEPS = 8
"""Fewer say nothing about a habit."""
PARTS = ("input_time_ns", "gc_time_ns", "checkpoint_time_ns")
PART_RATIO = 0.5


def slow_ranks(series: pa.Table) -> pa.Table:
    """One row per rank, where at least two ranks recorded both step and communication."""
    found = grids(series, (*NEEDED, "comm_time_ns", *PARTS))
    job = job_steps(found)
    if job is None or job.grid.metric != "step_time_ns" or "comm_time_ns" not in found:
        return SCHEMA.empty()
    grid = job.grid
    column = job.column[np.flatnonzero(job.steady.kept)]
    step, comm = grid.value[:, column], _rows_of(found["comm_time_ns"], grid)[:, column]
    known = np.isfinite(step) & np.isfinite(comm)
    here = (known.sum(axis=1) >= LEAST_STEPS) & (grid.ranks != NO_RANK)
    if here.sum() < 2:
        return SCHEMA.empty()
    whole = known[here].all(axis=0)
    if whole.sum() < LEAST_STEPS:
        return SCHEMA.empty()
    step, comm = step[here][:, whole], comm[here][:, whole]
    parts = {name: _rows_of(found[name], grid)[:, column][here][:, whole] for name in PARTS if name in found}
    return _table(grid.ranks[here], step, comm, parts)


def _rows_of(grid: Grid, like: Grid) -> Floats:
    """Values of `grid` at the ranks and steps of `like`; NaN where it has none."""
    values = aligned(grid, like)
    result = np.full((len(like.ranks), values.shape[1]), np.nan)
    at = np.minimum(np.searchsorted(grid.ranks, like.ranks), len(grid.ranks) - 1)
    same = grid.ranks[at] == like.ranks
    result[same] = values[at[same]]
    return result


def _table(ranks: np.ndarray, step: Floats, comm: Floats, parts: dict[str, Floats]) -> pa.Table:
    own = step - comm
    ordered = np.sort(own, axis=0)
    leads = own == ordered[-1]
    thirds = [part.mean(axis=1) for part in np.array_split(leads, 3, axis=1)]
    own_ns, comm_ns = np.median(own, axis=1), np.median(comm, axis=1)
    others_own, others_comm = _of_others(own_ns), _of_others(comm_ns)
    more = own_ns - others_own
    columns = {
        "rank": ranks,
        "ranks": [[rank] for rank in ranks.tolist()],
        "steps_count": np.full(len(ranks), step.shape[1]),
        "step_ns": np.full(len(ranks), round(float(np.median(step)))),
        "own_ns": _whole(own_ns),
        "others_ns": _whole(others_own),
        "comm_ns": _whole(comm_ns),
        "others_comm_ns": _whole(others_comm),
        "longest_ratio": np.min(thirds, axis=0),
        "lost_ns": _whole(np.where(leads, ordered[-1] - ordered[-2], 0.0).mean(axis=1)),
        "confirmed": (more > 0) & (others_comm - comm_ns >= more / 2),
        "ranks_count": np.full(len(ranks), len(ranks)),
    }
    return SCHEMA.build(columns | _parts(parts, more))


def _whole(values: Floats) -> Ints:
    whole: Ints = np.rint(values).astype(np.int64)
    return whole


def _of_others(values: Floats) -> Floats:
    """Median over all other entries, for each entry."""
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values), np.int64)
    place[order] = np.arange(len(values))
    ordered, rest = values[order], len(values) - 1

    def at(index: int) -> Floats:  # of the sorted rest, which lacks the entry itself
        found: Floats = ordered[index + (place <= index)]
        return found

    middle: Floats = (at((rest - 1) // 2) + at(rest // 2)) / 2
    return middle


def _parts(parts: dict[str, Floats], more: Floats) -> dict[str, Any]:
    """The part that holds most of the difference, per rank, where one holds half of it."""
    excess = {}
    for name, value in parts.items():
        known = np.isfinite(value).any(axis=1)
        if known.sum() > 1:
            typical = np.full(len(value), np.nan)
            typical[known] = np.nanmedian(value[known], axis=1)
            excess[name] = np.full(len(value), -np.inf)
            excess[name][known] = typical[known] - _of_others(typical[known])
    if not excess:
        return {}
    names = [name.removesuffix("_time_ns") for name in excess]
    table = np.stack(list(excess.values()))
    best = np.argmax(table, axis=0)
    most = table[best, np.arange(table.shape[1])]
    told = (more > 0) & (most >= PART_RATIO * more)
    return {
        "part": [names[b] if t else None for b, t in zip(best.tolist(), told.tolist(), strict=True)],
        "part_ns": np.ma.array(_whole(np.where(told, most, 0.0)), mask=~told),
    }
