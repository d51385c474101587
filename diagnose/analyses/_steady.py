"""What a run does when nothing is odd: warm-up and stalls are told apart from the steady series, which alone can drift.

Warm-up: the first steps while they are slower than what follows (compilation, caches, NCCL set-up). Stall: one step
far above its neighbours, whose median it does not move: a checkpoint, an evaluation, a pause. Periodic: stalls that
keep a distance in steps. Ramp: batch or sequence length were not yet what they are at the end; those steps cannot be
compared. Method: running median; a stall exceeds it by 6 robust standard deviations and by a fifth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Ints
from diagnose.analyses._grids import Flags, Floats

WINDOW_STEPS = 31
STALL_SIGMAS = 6.0
STALL_RATIO = 0.2
"""A stall costs at least a fifth of a step; heavy tails of ordinary noise stay below (a guess, to be fitted)."""
MOST_WARM_UP_RATIO = 0.2
WARM_UP_RATIO = 1.1
LEAST_PERIODIC = 3
EXACT_RATIO = 0.02
LOOSE_RATIO = 0.1
LEAST_IN_PHASE = 4
MOST_PHASED = 64
"""So many stalls are enough to find a period."""


class Steady(NamedTuple):
    """Flags per step, the running median, and how far each step lies above it."""

    warm_up: Flags
    stall: Flags
    middle: Floats
    excess: Floats

    @property
    def kept(self) -> Flags:
        """Steps that show the steady state."""
        kept: Flags = ~(self.warm_up | self.stall)
        return kept


def steady(value: Floats) -> Steady:
    """Tell warm-up and stalls of one finite series apart from the rest."""
    from scipy.ndimage import median_filter

    count = len(value)
    warm = np.zeros(count, bool)
    warm[: _warm_up(value)] = True
    middle = value.copy()
    rest = value[~warm]
    if len(rest) >= 3:
        size = min(WINDOW_STEPS, len(rest) - (len(rest) + 1) % 2)
        middle[~warm] = median_filter(rest, size=size, mode="mirror")
    excess = value - middle
    spread = 1.4826 * float(np.median(np.abs(excess[~warm]))) if (~warm).any() else 0.0
    stall = (excess > STALL_SIGMAS * spread) & (excess > STALL_RATIO * np.abs(middle)) & ~warm
    if warm.any() and (~warm).any():
        excess[warm] = np.maximum(0, value[warm] - float(np.median(rest[: 2 * WINDOW_STEPS])))
    return Steady(warm, stall, middle, excess)


def _warm_up(value: Floats) -> int:
    """How many first steps are slower than the steps behind them."""
    most = min(int(len(value) * MOST_WARM_UP_RATIO), 200)
    if len(value) < 5:
        return 0
    most = max(most, 1)
    level = float(np.median(value[most : most + 3 * WINDOW_STEPS]))
    slow = value[:most] > WARM_UP_RATIO * level
    if not slow[0]:
        return 0
    calm = np.flatnonzero(~slow)
    return int(calm[0]) if len(calm) else most


def period(step: Ints) -> tuple[int, Flags] | None:
    """Distance in steps that the stalls keep, and which of them keep it; None where they keep none.

    First all of them by the distances between neighbours, which may vary a little or miss some; else those that stand
    in one phase of an exact period, with strays in between.
    """
    if len(step) < LEAST_PERIODIC:
        return None
    apart = np.diff(step)
    base = float(np.median(apart))
    if base >= 2:
        times = np.maximum(1, np.rint(apart / base))
        off = np.abs(apart / times - base) / base
        exact = np.mean((off <= EXACT_RATIO) & (times <= 3))
        loose = np.mean((off <= LOOSE_RATIO) & (times <= 3))
        if exact >= 0.8 or (len(apart) >= 4 and loose >= 0.8 and base >= 10):
            return round(base), np.ones(len(step), bool)
    return _in_phase(step)


def _in_phase(step: Ints) -> tuple[int, Flags] | None:
    best: tuple[int, Flags] | None = None
    few = step[:MOST_PHASED]
    candidates = np.unique(np.concatenate([few[k:] - few[:-k] for k in (1, 2, 3) if len(few) > k]))
    for base in candidates[candidates >= 2].tolist():
        for phase in np.unique(few % base).tolist():
            away = (step - phase) % base
            near = np.minimum(away, base - away) <= (1 if base >= 20 else 0)
            count = int(near.sum())
            if count < max(LEAST_IN_PHASE, 0.5 * len(step)) or (best is not None and count <= best[1].sum()):
                continue
            inside = step[near]
            if count >= 0.8 * ((inside[-1] - inside[0]) / base + 1):
                best = base, near
    return best
