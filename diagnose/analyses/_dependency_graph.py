"""Replay of a dependency graph with other durations: when would every operation have ended?

An operation ends its own duration after its *start*; operations of one group (a collective, a send and its receive)
share one start, the moment the last of them is ready. An operation is ready when all that it depends on has ended.
Nothing else delays it: a replay knows only the dependencies it was given, so its own error has to be measured against
the recording before its answers are used.

Method: starts are laid out in levels (longest path from the beginning), each level is one vectorised maximum over all
scenarios at once. Linear in operations, dependencies and scenarios.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagnose.analyses._columns import Ints

Times = NDArray[np.float64]

MOST_CELLS = 4 << 20
"""Operations times scenarios replayed at once: some 100 MB."""


class Layout(NamedTuple):
    """A graph ready to replay. `start_of`: start of each operation (dense code)."""

    start_of: Ints
    starts_count: int
    levels: tuple[tuple[Ints, Ints, Ints], ...]
    """Per level after the first: starts, the operations they depend on, and where each start's list begins."""


def lay_out(start_of: Ints, before: Ints, after: Ints) -> Layout | None:
    """Levels of a graph of n operations; None where it has a cycle.

    `start_of`: code 0.. of the start of each operation, shared inside a group. `before` and `after`: rows of pairs,
    `after` depends on `before`.
    """
    count = int(start_of.max(initial=-1)) + 1
    pairs = (
        np.unique(np.stack([start_of[after], before], axis=1), axis=0) if len(before) else np.zeros((0, 2), np.int64)
    )
    child, parent = pairs[:, 0], pairs[:, 1]
    level = _levels(start_of[parent], child, count)
    if level is None:
        return None
    order = np.lexsort((child, level[child]))
    child, parent = child[order], parent[order]
    firsts = np.flatnonzero(np.append(True, child[1:] != child[:-1])) if len(child) else np.zeros(0, np.int64)
    of_level = level[child[firsts]]
    cuts = np.searchsorted(of_level, np.arange(1, int(level.max(initial=0)) + 2))
    ends = np.append(firsts, len(child))
    parts = []
    for low, high in pairwise(cuts.tolist()):
        edges = slice(ends[low], ends[high])
        parts.append((child[firsts[low:high]], parent[edges], firsts[low:high] - ends[low]))
    return Layout(start_of, count, tuple(parts))


def _levels(before: Ints, after: Ints, count: int) -> Ints | None:
    """Longest path to each start, by peeling those without open dependencies; None for a cycle."""
    level = np.zeros(count, np.int64)
    order = np.argsort(before, kind="stable")
    target = after[order]
    first = np.searchsorted(before[order], np.arange(count + 1))
    waiting = np.bincount(after, minlength=count)
    ready, done, depth = np.flatnonzero(waiting == 0), 0, 0
    while len(ready):
        level[ready] = depth
        done, depth = done + len(ready), depth + 1
        sizes = first[ready + 1] - first[ready]
        offsets = np.repeat(first[ready] - np.append(0, np.cumsum(sizes)[:-1]), sizes) + np.arange(int(sizes.sum()))
        freed, times = np.unique(target[offsets], return_counts=True)
        waiting[freed] -= times
        ready = freed[waiting[freed] == 0]
    return level if done == count else None


def replay(layout: Layout, durations: Times) -> Times:
    """End of every operation, in the unit of `durations` (n operations x k scenarios); same shape. All begin at 0."""
    begin = np.zeros((layout.starts_count, durations.shape[1]))
    for starts, parents, firsts in layout.levels:
        begin[starts] = np.maximum.reduceat(begin[layout.start_of[parents]] + durations[parents], firsts, axis=0)
    return begin[layout.start_of] + durations


def replays(layout: Layout, durations: Iterable[Times]) -> Iterator[Times]:
    """Ends of all operations (n x k) for k scenarios at a time, in order; `durations` are made as they are needed."""
    left = iter(durations)
    at_once = max(1, MOST_CELLS // max(1, len(layout.start_of)))
    while some := list(islice(left, at_once)):
        yield replay(layout, np.stack(some, axis=1))
