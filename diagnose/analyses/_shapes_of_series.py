"""Is a noisy series level, does it drift, or did it step, and since when? With the chance that it is noise.

Steps are cut into stretches of equal length whose medians are compared, so single odd steps and short memory of the
noise do not count. Four models: level; two levels (a step); two changes (a bump that ended); a ramp that begins
somewhere. The one that leaves least is taken, if the level leaves so much more that chance is ruled out: F test,
corrected for having tried every place.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from diagnose.analyses._grids import Floats

LEAST_STEPS = 32
MOST_STRETCHES = 32
LEAST_STRETCHES = 8
MOST_CHANCE = 1e-4
"""That noise alone looks like this; series of many jobs are looked at, so one in ten thousand."""


class Shape(NamedTuple):
    """What one series does."""

    name: str
    """level | step | drift | bump | short"""
    early: float
    late: float
    first: int
    """Index where it begins to change (0 where level)."""
    last: int
    """Index behind which it is over (length where it lasts)."""
    slope: float
    """Per index, of a ramp."""
    chance: float
    noise: float
    """Robust standard deviation of single values."""


def stretches(value: Floats) -> tuple[Floats, Floats]:
    """Middle index and median of each stretch."""
    count = len(value)
    number = max(LEAST_STRETCHES, min(MOST_STRETCHES, count // 8))
    edges = np.linspace(0, count, number + 1).astype(np.int64)
    at = (edges[:-1] + edges[1:] - 1) / 2
    middle = np.array([np.median(value[a:b]) for a, b in itertools.pairwise(edges)])
    return at, middle


def shape(value: Floats) -> Shape:
    """The shape of one finite series in order of steps."""
    from scipy.special import fdtrc

    count = len(value)
    level = float(np.median(value)) if count else 0.0
    noise = 1.4826 * float(np.median(np.abs(np.diff(value) - np.median(np.diff(value))))) / 2**0.5 if count > 2 else 0.0
    flat = Shape("level" if count >= LEAST_STEPS else "short", level, level, 0, count, 0.0, 1.0, noise)
    if count < LEAST_STEPS:
        return flat
    at, middle = stretches(value)
    least = max(float(np.abs(middle).max()), 1e-140) * 1e-9
    total = float(np.sum((middle - middle.mean()) ** 2))
    if total <= len(middle) * least**2:
        return flat
    tried = [_step(middle), _ramp(at, middle), _bump(middle)]
    found = []
    for name, left, parameters, tries, places in tried:
        free = len(middle) - 1 - parameters
        floor = free * max(least, 0.3 * noise * (len(middle) / count) ** 0.5) ** 2  # medians cannot agree better
        ratio = (total - left) / parameters / (max(left, floor) / free)
        chance = min(1.0, float(fdtrc(parameters, free, ratio)) * tries)
        found.append((max(left, floor) * _PENALTY[name], chance, name, places))
    left, chance, name, places = min(found)
    if chance > MOST_CHANCE:
        return flat._replace(chance=chance)
    return _described(name, value, at, middle, places, chance, noise)


_PENALTY = {"step": 1.0, "drift": 1.05, "bump": 1.6}
"""A model with more freedom must leave clearly less."""


def _step(middle: Floats) -> tuple[str, float, int, int, tuple[int, ...]]:
    number = len(middle)
    left = _two_levels(middle)
    best = int(np.argmin(left)) + 1
    return "step", float(left[best - 1]), 1, number - 1, (best,)


def _two_levels(middle: Floats) -> Floats:
    """Squares left by two levels, for a break before each stretch but the first."""
    number = np.arange(1, len(middle))
    sums, squares = np.cumsum(middle), np.cumsum(middle**2)
    before = squares[:-1] - sums[:-1] ** 2 / number
    rest = len(middle) - number
    behind = (squares[-1] - squares[:-1]) - (sums[-1] - sums[:-1]) ** 2 / rest
    left: Floats = np.maximum(before + behind, 0)
    return left


def _ramp(at: Floats, middle: Floats) -> tuple[str, float, int, int, tuple[int, ...]]:
    knots = np.arange(0, max(1, len(at) - 3))
    bent = np.maximum(0.0, at[None, :] - at[knots, None])
    bent = bent - bent.mean(axis=1, keepdims=True)
    rise = middle - middle.mean()
    slope = bent @ rise / np.sum(bent**2, axis=1)
    left = np.sum((rise[None, :] - slope[:, None] * bent) ** 2, axis=1)
    best = int(np.argmin(left))
    return "drift", float(left[best]), 1, len(knots), (best,)


def _bump(middle: Floats) -> tuple[str, float, int, int, tuple[int, ...]]:
    number = len(middle)
    first, last = np.triu_indices(number - 1, 1)
    first, last = first + 1, last + 1
    sums = np.concatenate(([0.0], np.cumsum(middle)))
    inside = (sums[last] - sums[first]) / (last - first)
    outside_count = number - (last - first)
    outside = (sums[-1] - sums[last] + sums[first]) / outside_count
    left = np.sum(middle**2) - inside**2 * (last - first) - outside**2 * outside_count
    left = np.where((last - first >= 2) & (number - last >= 2), np.maximum(left, 0), np.inf)
    best = int(np.argmin(left))
    return "bump", float(left[best]), 2, len(first), (int(first[best]), int(last[best]))


def _described(
    name: str, value: Floats, at: Floats, middle: Floats, places: tuple[int, ...], chance: float, noise: float
) -> Shape:
    count, width = len(value), len(value) / len(middle)
    if name == "drift":
        knot = places[0]
        bent = np.maximum(0.0, at - at[knot])
        slope = float(np.cov(bent, middle, bias=True)[0, 1] / np.var(bent))
        early = float(middle.mean() - slope * bent.mean())
        first = 0 if knot == 0 else round(float(at[knot]))
        start = early - slope * (at[0] if knot == 0 else 0)
        return Shape("drift", start, start + slope * (count - 1 - first), first, count, slope, chance, noise)
    early, late = float(np.median(middle[: places[0]])), float(np.median(middle[places[0] : (*places, None)[1]]))
    first = _refined(value, round(places[0] * width), width, early, late)
    if name == "step":
        return Shape("step", early, late, first, count, 0.0, chance, noise)
    last = _refined(value, round(places[1] * width), width, late, early)
    return Shape("bump", early, late, first, last, 0.0, chance, noise)


def _refined(value: Floats, around: int, width: float, before: float, behind: float) -> int:
    """The index near `around` at which the change of level leaves least absolute deviation."""
    low, high = max(1, int(around - 2 * width)), min(len(value) - 1, int(around + 2 * width))
    near = value[low : high + 1]
    off_before, off_behind = np.abs(near - before), np.abs(near - behind)
    cost = np.concatenate(([0.0], np.cumsum(off_before)[:-1])) + np.cumsum(off_behind[::-1])[::-1]
    return low + int(np.argmin(cost))
