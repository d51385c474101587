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

from diagnose.analyses._grids import NO_RANK, Floats, Grid, aligned, grids
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
    longest, second = ordered[-1], ordered[-2]
    own_medians, comm_medians = np.median(own, axis=1), np.median(comm, axis=1)
    rows: list[dict[str, Any]] = []
    for place, rank in enumerate(ranks.tolist()):
        leads = own[place] == longest
        others = np.arange(len(ranks)) != place
        others_own, others_comm = float(np.median(own_medians[others])), float(np.median(comm_medians[others]))
        more = own_medians[place] - others_own
        row = {
            "rank": rank, "ranks": [rank], "steps_count": step.shape[1], "step_ns": round(float(np.median(step))),
            "own_ns": round(own_medians[place]), "others_ns": round(others_own),
            "comm_ns": round(comm_medians[place]), "others_comm_ns": round(others_comm),
            "longest_ratio": min(float(third.mean()) for third in np.array_split(leads, 3)),
            "lost_ns": round(float(np.where(leads, longest - second, 0.0).mean())),
            "confirmed": bool(more > 0 and others_comm - comm_medians[place] >= more / 2),
            "ranks_count": len(ranks),
        }  # fmt: skip
        rows.append(row | _part(parts, place, others, more))
    return SCHEMA.build({name: [row.get(name) for row in rows] for name in SCHEMA.arrow.names})


def _part(parts: dict[str, Floats], place: int, others: np.ndarray, more: float) -> dict[str, Any]:
    """The part that holds most of the difference, if one holds half of it."""
    excess = {}
    for part, value in parts.items():
        if np.isfinite(value[place]).any() and np.isfinite(value[others]).any():
            excess[part] = float(np.nanmedian(value[place]) - np.nanmedian(value[others]))
    name = max(excess, key=lambda n: excess[n], default=None)
    if name is None or more <= 0 or excess[name] < PART_RATIO * more:
        return {}
    return {"part": name.removesuffix("_time_ns"), "part_ns": round(excess[name])}
