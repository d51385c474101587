"""Single long steps: warm-up, those that keep a period, and the rest; with the part and the rank that took the time.

A stall of the job is blamed on the part of a step (input, host, garbage collection, checkpoint, compute) that is
longer than usual by at least half of what the step lost, on the rank where it is longest; `rank` is null where half
of the ranks took as long, or none is known. Communication is never blamed: who waits did not cause it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import NO_RANK, Ints
from diagnose.analyses._grids import Floats, Grid, aligned, grids, over_ranks
from diagnose.analyses._job_steps import NEEDED, JobSteps, job_steps
from diagnose.analyses._steady import period
from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "step that took much longer than its neighbours",
    ("step", INT64, "step number"),
    ("kind", LABEL, "warm_up | periodic | single"),
    ("part", LABEL, "what took the time: checkpoint | gc | host_gap | input | alloc | compute; null where unknown"),
    ("rank", INT32, "rank that took it; null where several did or it is unknown"),
    ("excess_ns", INT64, "longer than its neighbours by this; null where only rates are known"),
    ("excess_ratio", FLOAT, "excess over a usual step"),
    ("period_count", INT64, "steps between stalls of a periodic one"),
    ("usual_ns", INT64, "a usual step nearby"),
    ("run_count", INT64, "steps of the run that were looked at"),
)

OWN = ("checkpoint", "gc", "host_gap", "input", "alloc", "compute")
BLAMED_RATIO = 0.5
SAMPLED_STEPS = 1000


def stalls(series: pa.Table) -> pa.Table:
    """One row per long step of the job, in order."""
    found = grids(series, (*NEEDED, *(f"{part}_time_ns" for part in OWN)))
    job = job_steps(found)
    if job is None or not len(job.column):
        return SCHEMA.empty()
    odd = np.flatnonzero(job.steady.stall | job.steady.warm_up)
    part, rank = _blamed(found, job, odd)
    warm = job.steady.warm_up[odd]
    kinds, periods = _kinds(job.step[odd], warm, part, rank)
    usual = job.steady.middle[odd]
    usual[warm] = np.median(job.value[job.steady.kept]) if job.steady.kept.any() else np.nan
    excess = job.steady.excess[odd]
    times = [round(v) if job.timed and np.isfinite(v) else None for v in excess.tolist()]
    return SCHEMA.build(
        {
            "step": job.step[odd],
            "kind": kinds,
            "part": [OWN[p] if p >= 0 else None for p in part.tolist()],
            "rank": [r if r != NO_RANK else None for r in rank.tolist()],
            "excess_ns": times,
            "excess_ratio": excess / usual,
            "period_count": periods,
            "usual_ns": [round(v) if job.timed and np.isfinite(v) else None for v in usual.tolist()],
            "run_count": np.full(len(odd), len(job.value)),
        }
    )


def _blamed(found: dict[str, Grid], job: JobSteps, odd: Ints) -> tuple[Ints, Ints]:
    """Part (place in OWN, -1: none) and rank of every odd step."""
    part, rank = np.full(len(odd), -1), np.full(len(odd), NO_RANK)
    best = BLAMED_RATIO * job.steady.excess[odd]
    for place, name in enumerate(OWN):
        grid = found.get(f"{name}_time_ns")
        if grid is None or not len(odd):
            continue
        over = _above_usual(grid, job, odd)
        most = over.max(axis=0)
        better = most > best
        part[better], best[better] = place, most[better]
        several = (over >= 0.5 * most).mean(axis=0) >= 0.5
        longest = grid.ranks[over.argmax(axis=0)]
        alone = better & ~(several & (len(grid.ranks) > 1))
        rank[better] = NO_RANK
        rank[alone] = longest[alone]
    return part, rank


def _above_usual(grid: Grid, job: JobSteps, odd: Ints) -> Floats:
    """How much longer than usual each rank was at the odd steps; usual is its median over a thousand others."""
    kept = job.column[job.steady.kept]
    usual = over_ranks(aligned(grid, job.grid, kept[:: max(1, len(kept) // SAMPLED_STEPS)]).T)
    level = np.nan_to_num(usual, nan=0.0)
    above: Floats = np.nan_to_num(aligned(grid, job.grid, job.column[odd]) - level[:, None], nan=0.0)
    return above


def _kinds(step: Ints, warm: np.ndarray, part: Ints, rank: Ints) -> tuple[list[str], list[int | None]]:
    """Kind and period of every odd step; stalls of one rank and part, and those of unknown ones, are taken together."""
    kinds: list[Any] = ["warm_up" if w else "single" for w in warm.tolist()]
    periods: list[int | None] = [None] * len(step)
    for one in np.unique(rank[~warm]).tolist():
        for what in np.unique(part[(rank == one) & ~warm]).tolist():
            mine = np.flatnonzero((rank == one) & (part == what) & ~warm)
            if (found := period(step[mine])) is not None:
                for place in mine[found[1]].tolist():
                    kinds[place], periods[place] = "periodic", found[0]
    return kinds, periods
