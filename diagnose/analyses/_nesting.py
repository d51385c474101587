"""Which interval is open at a moment on a host thread, for many moments at once.

"Innermost" is the open interval that started last (of equal starts, the one that ends first), which is what a
stack means where intervals nest and stays well defined where they cross, as profiler frames sometimes do.
An interval is open from its start up to, not including, its end: one without length is never open.

Method: intervals sorted by start; `_outer[i]` is the nearest earlier one that ends later, so a query starts at the
last interval that began and follows `_outer` until one still runs: at most as many hops as the stack is deep.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnose.analyses._columns import Ints, encode, place, take


class Nesting:
    """Intervals of many threads, indexed for `innermost`."""

    def __init__(self, thread: Ints, starts: Ints, ends: Ints, rows: Ints) -> None:
        """`thread` is a dense code >= 0; `rows` is what `innermost` returns for an interval. All of one length."""
        order = _order(thread, starts, ends)
        self._starts, self._ends = starts[order], ends[order]
        self._rows = rows[order].astype(np.int32)  # half the memory; a table of more rows does not fit anyway
        self._bounds = np.searchsorted(thread[order], np.arange(int(thread.max(initial=-1)) + 2))
        self._outer = _outer(self._ends, self._bounds)

    def innermost(self, thread: Ints, at_ns: Ints) -> Ints:
        """Row of the innermost interval open at each (thread, moment); -1 where none is."""
        return self._named(self._climb(self._last_started(thread, at_ns), at_ns))

    def started_ns(self, thread: Ints, at_ns: Ints) -> Ints:
        """Start of that interval; the smallest int64 where none is open."""
        found = self._climb(self._last_started(thread, at_ns), at_ns)
        return take(self._starts, found, np.iinfo(np.int64).min)

    def _named(self, found: Ints) -> Ints:
        return take(self._rows, found, -1)

    def _last_started(self, thread: Ints, at_ns: Ints) -> Ints:
        """Index of the last interval of the thread that started at or before the moment; -1 where none has."""
        found = np.full(len(at_ns), -1, dtype=np.int64)
        order = np.argsort(thread, kind="stable")
        cuts = np.searchsorted(thread[order], np.arange(len(self._bounds)))
        for code, (low, high) in enumerate(zip(self._bounds, self._bounds[1:], strict=False)):
            mine = order[cuts[code] : cuts[code + 1]]
            if high > low and len(mine):
                index = np.searchsorted(self._starts[low:high], at_ns[mine], side="right") + low - 1
                found[mine] = np.where(index >= low, index, -1)
        return found

    def _climb(self, found: Ints, at_ns: Ints) -> Ints:
        active = np.flatnonzero(found >= 0)
        while len(active):
            active = active[self._ends[found[active]] <= at_ns[active]]
            found[active] = self._outer[found[active]]
            active = active[found[active] >= 0]
        return found


def _order(thread: Ints, starts: Ints, ends: Ints) -> Ints:
    """Permutation by (thread, start, end descending); stable, and quick where the input is nearly sorted."""
    order = np.argsort(starts, kind="stable")
    order = order[np.argsort(thread[order].astype(np.int32), kind="stable")]
    same = (starts[order[1:]] == starts[order[:-1]]) & (thread[order[1:]] == thread[order[:-1]])
    if same.any():  # order only the members of ties by their ends
        member = np.zeros(len(order), dtype=bool)
        member[1:] |= same
        member[:-1] |= same
        tied = order[member]
        order[member] = tied[np.lexsort((-ends[tied], starts[tied], thread[tied]))]
    return order


def _outer(ends: Ints, bounds: Ints) -> NDArray[np.int32]:
    """Nearest earlier interval of the same thread that ends later; -1 where there is none.

    Pointer jumping: a pointer that still points at an interval ending no later takes that one's pointer. What is
    jumped over always ends no later, so intermediate pointers are safe to follow and chains halve each round.
    """
    outer = np.arange(-1, len(ends) - 1, dtype=np.int32)
    outer[bounds[:-1][bounds[:-1] < len(ends)]] = -1
    active = np.flatnonzero(outer >= 0)
    while len(active):
        active = active[ends[outer[active]] <= ends[active]]
        outer[active] = outer[outer[active]]
        active = active[outer[active] >= 0]
    return outer


class Threads:
    """Dense codes of (process, thread) pairs that occur in events."""

    def __init__(self, process: pa.ChunkedArray, thread: pa.ChunkedArray) -> None:
        self._processes, p = encode(process)
        self._threads, t = encode(thread)
        pair = self._pair(p, t)
        present = np.zeros(len(self._processes) * len(self._threads) + 1, dtype=bool)
        present[pair] = True
        present[-1] = False  # the place of -1: no process or no thread
        self.count = int(present.sum())
        self._code_of_pair = np.where(present, np.cumsum(present) - 1, -1)
        self.of_event = self._code_of_pair[pair]

    def code(self, process: pa.ChunkedArray | Ints, thread: pa.ChunkedArray | Ints) -> Ints:
        """Code of each pair; -1 for nulls and pairs that never occur."""
        return self._code_of_pair[self._pair(place(self._processes, process), place(self._threads, thread))]

    def _pair(self, process: Ints, thread: Ints) -> Ints:
        return np.where((process >= 0) & (thread >= 0), process * len(self._threads) + thread, -1)
