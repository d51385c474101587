"""Ends of shared collectives as lines: how far each rank's clock is from its group's, at one moment and per time.

A *group* here is a set of ranks that meet in the same calls. Its own time is the mean of its ranks' ends, so a line of
one rank is relative to something that all of them share, and lines of one group can be compared.

Method: median of differences; from enough calls a least-squares line with outliers left out (three rounds), kept only
where its rise clearly exceeds what is left over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._instances import Runs, runs

MIN_CALLS_FOR_DRIFT = 16
ENOUGH_CALLS = 128
"""Of one set of ranks; more make no line better than the ends themselves allow."""
_CLEARLY = 3.0
"""A rise over the recording that exceeds the spread this many times is a drift."""
MOST_DRIFT_RATIO = 1e-3
"""No clock runs this much faster than another (quartz: under 1e-4; NTP slews by 5e-4): such a slope is noise."""
_OUTER_RATIO = 0.95
Floats = NDArray[np.float64]


class Lines(NamedTuple):
    """One per (group, rank); arrays of one length, and two figures of the whole."""

    group: Ints  # dense
    rank: Ints  # dense
    offset: Floats  # group minus rank at at_ns, ns
    slope: Floats  # of that difference; 0 where none was measured
    drifting: Flags  # a slope was measured
    spread_ns: Ints  # what ends do not agree on
    calls: Ints  # how many
    at_ns: int
    span_ns: int


def fit(rank: Ints, end: Ints, match: Ints, length: Ints, loose: Flags) -> Lines:
    """Lines from the rows of matched calls (`match`: one number per call; `loose`: ends differ by up to a transfer)."""
    if not len(rank):
        none = np.zeros(0, np.int64)
        return Lines(none, none, np.zeros(0), np.zeros(0), none > 0, none, none, 0, 0)
    kept = _thinned(rank, end, match)
    rank, end, match, length, loose = rank[kept], end[kept], match[kept], length[kept], loose[kept]
    calls = runs(match, rank)
    group = np.unique(_sets(rank, calls) * 2 + loose, return_inverse=True)[1].astype(np.int64)
    origin = int(end.min())
    since = (end - origin).astype(np.float64)
    mean = (np.add.reduceat(since[calls.order], calls.first) / calls.size_of)[calls.of_row]
    shortest = np.minimum.reduceat(length[calls.order], calls.first)[calls.of_row]
    member = runs(group * (int(rank.max()) + 1) + rank, end)
    away = mean - since
    middle = float((since.min() + since.max()) / 2)
    moment = since - middle
    offset, slope, left = _robust(away, moment, member)
    enough = member.size_of >= MIN_CALLS_FOR_DRIFT
    heads = member.order[member.first]
    steep = enough & (np.abs(slope) * np.ptp(since) > _CLEARLY * left)
    # One clock of a group that drifts moves the mean of all: then every line of it has a slope, however small.
    drifting = _any(steep, group[heads]) & _every(enough, group[heads])
    drifting &= ~_any(steep & (np.abs(slope) > MOST_DRIFT_RATIO), group[heads])
    level = _chosen(drifting, offset, _quantile(away, member, 0.5))
    rise = _chosen(drifting, slope, np.zeros(len(slope)))
    rest = np.abs(away - level[member.of_row] - rise[member.of_row] * moment)
    spread = _quantile(rest, member, _OUTER_RATIO)
    # Two ends never tell how far ends may lie apart: then the shortest duration bounds it, as nobody leaves early.
    bound = _quantile(shortest.astype(np.float64), member, 0.5)
    spread = np.where((member.size_of < 3) | loose[heads], np.maximum(spread, bound), spread)
    return Lines(
        group[heads],
        rank[heads],
        level,
        rise,
        drifting,
        np.ceil(spread).astype(np.int64),
        member.size_of,
        origin + int(middle),
        int(np.ptp(since)),
    )


def _chosen(first: Flags, one: Floats, other: Floats) -> Floats:
    return np.asarray(np.where(first, one, other), np.float64)


def _thinned(rank: Ints, end: Ints, match: Ints) -> Ints:
    """Rows of at most ENOUGH_CALLS calls of every set of ranks, evenly over the recording."""
    calls = runs(match, rank)
    heads = calls.order[calls.first]
    of_set = runs(_sets(rank, calls)[heads], end[heads])
    place = np.empty(len(heads), np.int64)
    place[of_set.order] = np.arange(len(heads)) - np.repeat(of_set.first, of_set.size_of)
    stride = -(-of_set.size_of // ENOUGH_CALLS)
    return np.flatnonzero((place % stride[of_set.of_row] == 0)[calls.of_row])


def _any(flag: Flags, group: Ints) -> Flags:
    """Per line, whether any line of its group has the flag."""
    found: Flags = (np.bincount(group, weights=flag) > 0)[group]
    return found


def _every(flag: Flags, group: Ints) -> Flags:
    """Per line, whether all lines of its group have the flag."""
    return ~_any(~flag, group)


def _sets(rank: Ints, calls: Runs) -> Ints:
    """Dense code of the set of ranks of each row's call: a sum of random numbers stands for a set."""
    draw = np.random.default_rng(20).integers(0, 1 << 40, int(rank.max()) + 1)
    total = np.add.reduceat(draw[rank[calls.order]], calls.first)
    return np.unique(total, return_inverse=True)[1].astype(np.int64)[calls.of_row]


def _quantile(values: Floats, of: Runs, share: float) -> Floats:
    """Per run: the value below which `share` of the run's values lie (the upper of two)."""
    order = np.lexsort((values, of.of_row))
    at = np.minimum(np.ceil((of.size_of - 1) * share).astype(np.int64), of.size_of - 1)
    return np.asarray(values[order][of.first + at], np.float64)


def _robust(values: Floats, moment: Floats, of: Runs) -> tuple[Floats, Floats, Floats]:
    """(value at 0, slope, typical residual) per run."""
    weight = np.ones(len(values))
    total = np.zeros(len(of.first))
    offset, slope = total.copy(), total.copy()

    def summed(x: Floats) -> Floats:
        return np.asarray(np.bincount(of.of_row, weights=weight * x, minlength=len(of.first)), np.float64)

    rest = np.abs(values)
    for _ in range(3):
        total = np.maximum(summed(np.ones(len(values))), 1)
        centre, mean = summed(moment) / total, summed(values) / total
        dx, dy = moment - centre[of.of_row], values - mean[of.of_row]
        slope = np.asarray(summed(dx * dy) / np.maximum(summed(dx * dx), 1e-9), np.float64)
        offset = mean - slope * centre
        rest = np.abs(values - offset[of.of_row] - slope[of.of_row] * moment)
        limit = np.maximum(3 * _quantile(rest, of, 0.5), 1.0)
        weight = (rest <= limit[of.of_row]).astype(float)
    return offset, slope, _quantile(rest, of, 0.5)
