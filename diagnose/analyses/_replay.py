"""Life times of allocations from an allocator's events and the state at their end.

The history is a ring that may have lost its beginning, so the end state is the truth and the walk goes backwards: what
is alive at the end without an allocation in the history is older than it, a free without an allocation ends something
older, two allocations at one address without a free between have lost the free. Therefore no state is below zero or
above what fitted. States are numbered like events: state i is after event i, state -1 before the first.
Method: events sorted by address and order; each allocation ends at the next event of its address.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagnose.analyses._columns import Flags, Ints

Addresses = NDArray[np.uint64]
ROUNDING_BYTES = 512
"""The allocator's smallest unit (c10/cuda/CUDACachingAllocator.h, kMinBlockSize)."""


class Lives(NamedTuple):
    """One allocation each: alive in the states `start` to `end` - 1. `event` made it (-1: before the recording)."""

    address: Addresses
    size: Ints
    start: Ints
    end: Ints
    event: Ints
    block: Ints
    """Row of the end block that it is; -1 where it was freed."""


def lives(made: Flags, freed: Flags, address: Addresses, size: Ints, end_address: Addresses, end_size: Ints,
          ended: bool = True) -> Lives:  # fmt: skip
    """Lives from n events in order and the blocks alive at their end. `ended`: the end state is known."""
    n = len(made)
    rows = np.flatnonzero(made | freed)
    rows = rows[np.lexsort((rows, address[rows]))]
    at, is_made = address[rows], made[rows]
    same_next = np.append(at[1:] == at[:-1], False) if len(rows) else np.zeros(0, dtype=bool)
    same_before = np.append(False, at[1:] == at[:-1]) if len(rows) else np.zeros(0, dtype=bool)
    following = np.append(rows[1:], n) if len(rows) else rows
    order = np.argsort(end_address, kind="stable")
    block_of = _place(end_address[order], order, at)
    last_made = is_made & ~same_next
    survives = last_made & (block_of >= 0) if ended else last_made
    end = np.where(same_next, following, np.where(survives, n, rows))
    of_history = _Rows(at[is_made], size[rows[is_made]], rows[is_made], end[is_made], rows[is_made],
                       np.where(survives, block_of, -1)[is_made])  # fmt: skip
    known = of_history.block >= 0
    of_history.size[known] = end_size[of_history.block[known]]
    first_freed = ~is_made & ~same_before
    older = _Rows(at[first_freed], size[rows[first_freed]], _fill(-1, first_freed), rows[first_freed],
                  _fill(-1, first_freed), _fill(-1, first_freed))  # fmt: skip
    missing = np.ones(len(end_address), dtype=bool)
    missing[of_history.block[known]] = False
    rest = np.flatnonzero(missing)
    last_event = _last_event(at, rows, end_address[rest])
    standing = _Rows(end_address[rest], end_size[rest], last_event, np.full(len(rest), n), np.full(len(rest), -1), rest)
    parts = (of_history, older, standing)
    return Lives(*(np.concatenate([part[i] for part in parts]) for i in range(6)))


def rounded(size: Ints) -> Ints:
    """Requested sizes as the allocator rounds them."""
    return np.asarray(-(-size // ROUNDING_BYTES) * ROUNDING_BYTES, dtype=np.int64)


def totals(found: Lives, n: int) -> Ints:
    """Bytes alive in the states -1 to n - 1 (n + 1 values)."""
    change = np.zeros(n + 2, dtype=np.int64)
    np.add.at(change, found.start + 1, found.size)
    np.subtract.at(change, found.end + 1, found.size)
    return np.cumsum(change)[: n + 1]


class _Rows(NamedTuple):
    address: Addresses
    size: Ints
    start: Ints
    end: Ints
    event: Ints
    block: Ints


def _fill(value: int, chosen: Flags) -> Ints:
    return np.full(int(chosen.sum()), value, dtype=np.int64)


def _place(known: Addresses, rows: Ints, wanted: Addresses) -> Ints:
    """Row of each wanted address among sorted `known`; -1 where it is not there."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, rows[at], -1)


def _last_event(at: Addresses, rows: Ints, wanted: Addresses) -> Ints:
    """Last event of each wanted address (it freed something there; who came after is not recorded); -1: none."""
    if not len(at):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.searchsorted(at, wanted, side="right") - 1
    hit = (place >= 0) & (at[np.maximum(place, 0)] == wanted)
    return np.where(hit, rows[np.maximum(place, 0)], -1)
