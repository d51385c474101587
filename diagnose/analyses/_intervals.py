"""Interval algebra on whole columns: unions, differences, overlaps of half-open int64 nanosecond intervals.

A *set* of intervals is an int64 array of shape (n, 2), rows `[start, end)`, sorted, disjoint, not touching, none
empty. `union` makes one from anything; every other function takes sets (or says otherwise) and gives sets.
Half-open: two intervals that touch do not overlap, and an empty interval covers nothing.

Method: sorting plus running maxima for unions, `searchsorted` with a prefix sum of lengths for overlaps, and an
edge sweep for set operations; everything is O(n log n) in numpy, nothing loops over intervals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

EMPTY: Int = np.empty((0, 2), np.int64)
EMPTY.setflags(write=False)


def union(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Int:
    """The set that the intervals `[starts[i], ends[i])`, in any order and overlapping, cover together."""
    first, last = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    keep = last > first
    if not keep.all():
        first, last = first[keep], last[keep]
    if first.size == 0:
        return EMPTY
    if np.any(first[1:] < first[:-1]):
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
    reach = np.maximum.accumulate(last)
    opens = np.empty(first.size, bool)
    opens[0] = True
    np.greater(first[1:], reach[:-1], out=opens[1:])
    at = np.flatnonzero(opens)
    return np.column_stack((first[at], reach[np.append(at[1:] - 1, first.size - 1)]))


def merge(*sets: Int) -> Int:
    """Union of several sets."""
    pieces = [s for s in sets if len(s)]
    if not pieces:
        return EMPTY
    if len(pieces) == 1:
        return pieces[0]
    stacked = np.concatenate(pieces)
    return union(stacked[:, 0], stacked[:, 1])


def total(intervals: Int) -> int:
    """Length of a set, ns."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def intersect(a: Int, b: Int) -> Int:
    """What both sets cover."""
    return _sweep(a, b, 2)


def subtract(a: Int, b: Int) -> Int:
    """What `a` covers and `b` does not."""
    if not len(b):
        return a
    return _sweep(a, b, 1)


def complement(intervals: Int, start: int, end: int) -> Int:
    """What the set leaves free of `[start, end)`."""
    return subtract(union([start], [end]), intervals)


def clip(intervals: Int, start: int, end: int) -> Int:
    """The part of a set inside `[start, end)`."""
    low = int(np.searchsorted(intervals[:, 1], start, "right"))
    high = int(np.searchsorted(intervals[:, 0], end, "left"))
    if high <= low:
        return EMPTY
    cut: Int = intervals[low:high].copy()
    cut[0, 0], cut[-1, 1] = max(cut[0, 0], start), min(cut[-1, 1], end)
    return cut if cut[0, 1] > cut[0, 0] and cut[-1, 1] > cut[-1, 0] else union(cut[:, 0], cut[:, 1])


def covered_before(intervals: Int, moments: npt.ArrayLike) -> Int:
    """Per moment, how many ns of the set lie before it; shape of `moments`."""
    when = np.asarray(moments, np.int64)
    if not len(intervals):
        return np.zeros(when.shape, np.int64)
    before = np.concatenate(([0], np.cumsum(intervals[:, 1] - intervals[:, 0])))
    at = np.searchsorted(intervals[:, 0], when, "right")
    last = np.maximum(at - 1, 0)
    partial = np.minimum(when, intervals[last, 1]) - intervals[last, 0]
    return np.where(at > 0, before[last] + partial, 0)


def overlap_with(starts: npt.ArrayLike, ends: npt.ArrayLike, intervals: Int) -> Int:
    """Per interval `[starts[i], ends[i])` (any order, may overlap), how many ns of it the set covers."""
    first, last = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    return covered_before(intervals, np.maximum(first, last)) - covered_before(intervals, first)


def contains(intervals: Int, moments: npt.ArrayLike) -> Bool:
    """Per moment, whether the set covers it (`start <= moment < end`)."""
    return index_at(intervals, moments) >= 0


def index_at(intervals: Int, moments: npt.ArrayLike) -> Int:
    """Per moment, the row of the set that covers it, or -1."""
    when = np.asarray(moments, np.int64)
    if not len(intervals):
        return np.full(when.shape, -1, np.int64)
    at = np.searchsorted(intervals[:, 0], when, "right") - 1
    return np.where((at >= 0) & (when < intervals[np.maximum(at, 0), 1]), at, -1)


def split_at(intervals: Int, moments: npt.ArrayLike) -> Int:
    """The set cut at every moment inside it: sorted and disjoint, but pieces may touch (not a set any more)."""
    if not len(intervals):
        return EMPTY
    when = np.sort(np.asarray(moments, np.int64))
    when = when[np.append(True, when[1:] > when[:-1])[: when.size]]
    inside = index_at(intervals, when)
    when = when[(inside >= 0) & (when > intervals[np.maximum(inside, 0), 0])]
    starts = np.sort(np.concatenate((intervals[:, 0], when)))
    ends = np.sort(np.concatenate((intervals[:, 1], when)))
    return np.column_stack((starts, ends))


def layers(intervals: list[Int]) -> list[Int]:
    """Each set minus all sets before it: disjoint, with the same union; earlier sets have precedence."""
    taken, result = EMPTY, []
    for one in intervals:
        result.append(subtract(one, taken))
        taken = merge(taken, one)
    return result


def _sweep(a: Int, b: Int, wanted: int) -> Int:
    """Where a-cover (1) + b-cover (2 -> see below) equals the wanted state: 2 both, 1 only `a`."""
    if not len(a) or (wanted == 2 and not len(b)):
        return EMPTY
    moments = np.concatenate((a.ravel(), b.ravel()))
    steps = np.concatenate((np.tile([1, -1], len(a)), np.tile([2, -2], len(b))))
    order = np.argsort(moments, kind="stable")
    moments, state = moments[order], np.cumsum(steps[order])
    held = state[:-1] == (3 if wanted == 2 else 1)
    return union(moments[:-1][held], moments[1:][held])
