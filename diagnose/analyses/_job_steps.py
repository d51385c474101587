"""How long a step of the whole job takes, over all steps, and which of them can be compared.

Ranks of one job step together, so the median over ranks is the job. Where batch or sequence length change (a ramp),
only steps that did the work of the last ones are compared; where a rate of samples or tokens is logged too, the time
per unit of work is. A rate alone tells by how much a job slowed, but not in seconds, unless the batch is known
(`timed`). Where neither is logged, the time between two logged steps is, shared over the steps between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Ints
from diagnose.analyses._grids import Flags, Floats, Grid, aligned, over_ranks
from diagnose.analyses._steady import Steady, steady

RATES = ("tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s")
WORK = ("global_batch_count", "seq_len_count")
NEEDED = ("step_time_ns", "steps_per_s", "elapsed_time_ns", *RATES, *WORK)
CHANGED_RATIO = 0.02


class JobSteps(NamedTuple):
    """Steps of the job in order of training that can be compared."""

    grid: Grid
    """The metric they come from; `column` are its columns."""
    column: Ints
    value: Floats
    """Time a step, or its inverse rate where `timed` is false."""
    timed: bool
    steady: Steady
    ramp_count: int

    @property
    def step(self) -> Ints:
        """Step numbers."""
        return self.grid.step[self.column]


def job_steps(found: dict[str, Grid]) -> JobSteps | None:
    """The job's steps, None where neither time nor rate is logged."""
    chosen = _chosen(found)
    if chosen is None:
        return None
    grid, value, timed = chosen
    same = _same_work(found, grid)
    ramp_count = int((~same).sum())
    usable = same & np.isfinite(value) & (value > 0)
    column = np.flatnonzero(usable)
    return JobSteps(grid, column, value[column], timed, steady(value[column]), ramp_count)


def _chosen(found: dict[str, Grid]) -> tuple[Grid, Floats, bool] | None:
    if grid := found.get("step_time_ns"):
        return grid, _per_work(found, grid, grid.over_ranks()), True
    if grid := found.get("steps_per_s"):
        return grid, _inverse(grid.over_ranks()) * 1e9, True
    if (grid := found.get("samples_per_s")) and (batch := found.get("global_batch_count")):
        return grid, _inverse(grid.over_ranks()) * np.nanmedian(batch.value) * 1e9, True
    for name in RATES:
        if grid := found.get(name):
            return grid, _inverse(grid.over_ranks()), False
    if grid := found.get("elapsed_time_ns"):
        return grid, _between(grid), True
    return None


def _between(grid: Grid) -> Floats:
    """Time per step from the time since the start; unknown for the first of every segment, and where it goes back."""
    elapsed, value = grid.over_ranks(), np.full(len(grid.step), np.nan)
    if len(elapsed) > 1:
        time, steps = np.diff(elapsed), np.diff(grid.step)
        same = (np.diff(grid.segment) == 0) & (steps > 0) & (time > 0)
        value[1:][same] = time[same] / steps[same]
    return value


def _inverse(rate: Floats) -> Floats:
    seconds: Floats = np.divide(1.0, rate, out=np.full(len(rate), np.nan), where=rate > 0)
    return seconds


def _per_work(found: dict[str, Grid], grid: Grid, value: Floats) -> Floats:
    """Time at constant work: a longer step that does more in the same proportion is no slower step."""
    for name in RATES:
        if name in found:
            rate = over_ranks(aligned(found[name], grid))
            work = value * rate
            if np.isfinite(work).all() and (rate > 0).all() and np.ptp(work) > CHANGED_RATIO * np.median(work):
                jumps = np.abs(np.diff(work)) > CHANGED_RATIO * np.median(work)
                if jumps.mean() < 0.2:  # steps of work, not rates that were averaged or rounded
                    return np.median(work) / rate
    return value


def _same_work(found: dict[str, Grid], grid: Grid) -> Flags:
    """Steps that did as much work as the last ones."""
    same = np.ones(len(grid.step), bool)
    for name in WORK:
        if name not in found or (name == "seq_len_count" and grid.metric in RATES[:2]):
            continue
        work = np.nanmax(np.nan_to_num(aligned(found[name], grid), nan=-1), axis=0)
        known = work >= 0
        if known.any() and np.ptp(work[known]) > 0:
            last = float(np.median(work[known][-max(1, known.sum() // 10) :]))
            same &= ~known | (np.abs(work - last) <= CHANGED_RATIO * last)
    return same
