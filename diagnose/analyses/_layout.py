"""What a device's segments looked like in one state of the recording: live blocks, holes between them, whole free ones.

At the end this is recorded. Earlier states are rebuilt: segments made later go, segments freed later come back, pages
of expandable segments mapped later are unmapped again; live blocks are those of `lifetimes`. A rest of up to 1 MiB
behind a live block of a large segment is part of that block (the allocator does not split it off), not a hole.
Source: c10/cuda/CUDACachingAllocator.cpp (should_split, kSmallSize).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _replay
from diagnose.analyses._columns import Flags, Ints, flags, integers
from diagnose.analyses._replay import Addresses

UNSPLIT_BYTES = 1 << 20
"""A rest of up to this size stays with its block in large, not expandable segments (kSmallSize)."""


class Layout(NamedTuple):
    """Segments, and free holes in them. `segment` of a hole is an index in the segment arrays."""

    address: Addresses
    size: Ints
    live: Ints
    """Bytes in live blocks per segment."""
    live_count: Ints
    private: Flags
    """In a pool of its own (CUDA graph): it cannot serve the default pool."""
    expandable: Flags
    hole_segment: Ints
    hole_size: Ints

    @property
    def stranded_bytes(self) -> int:
        """Free bytes in segments that hold a live block."""
        return int(self._free()[self.live_count > 0].sum())

    @property
    def cached_bytes(self) -> int:
        """Bytes of wholly free segments."""
        return int(self.size[self.live_count == 0].sum())

    @property
    def largest_hole_bytes(self) -> int:
        """Largest free range that the default pool can use."""
        usable = self.hole_size[~self.private[self.hole_segment]]
        return int(usable.max(initial=0))

    def _free(self) -> Ints:
        return np.bincount(self.hole_segment, self.hole_size, len(self.size)).astype(np.int64)

    def per_segment(self) -> tuple[Ints, Ints, Ints]:
        """Free bytes, largest hole and number of holes of each segment."""
        largest = np.zeros(len(self.size), dtype=np.int64)
        np.maximum.at(largest, self.hole_segment, self.hole_size)
        return self._free(), largest, np.bincount(self.hole_segment, minlength=len(self.size))


class _Made(NamedTuple):
    address: Addresses
    size: Ints
    private: Flags
    expandable: Flags
    large: Flags
    owner: Addresses
    """Address of the segment that a mapped range belongs to; the range's own where not expandable."""


def at_end(segments: pa.Table, blocks: pa.Table) -> Layout:
    """The recorded layout of one rank and device."""
    made = _end_segments(segments)
    owner = np.asarray(blocks["segment"].fill_null(0), dtype=np.uint64)
    order = np.argsort(made.address, kind="stable")
    place = np.minimum(np.searchsorted(made.address[order], owner), max(0, len(order) - 1))
    inside = order[place] if len(order) else np.zeros(len(owner), dtype=np.int64)
    active = flags(pc.starts_with(blocks["state"].cast(pa.string()), "active"))
    size = integers(blocks["size_bytes"])
    live = np.bincount(inside[active], size[active], len(made.size)).astype(np.int64)
    count = np.bincount(inside[active], minlength=len(made.size))
    return Layout(made.address, made.size, live, count, made.private, made.expandable, inside[~active], size[~active])


def at_state(state: int, events: pa.Table, segments: pa.Table, live_address: Addresses, live_size: Ints) -> Layout:
    """The layout in a state before the end, from events in order, end segments and the blocks alive then."""
    made = _with_mapped(state, events, _segments_at(state, events, _end_segments(segments)))
    order = np.argsort(made.address, kind="stable")
    made = _Made(made.address[order], made.size[order], made.private[order], made.expandable[order],
                 made.large[order], made.owner[order])  # fmt: skip
    at = np.argsort(live_address, kind="stable")
    address, size = live_address[at], live_size[at].astype(np.uint64)
    inside = np.searchsorted(made.address, address, side="right") - 1
    held = (inside >= 0) & (address < (made.address + made.size.astype(np.uint64))[np.maximum(inside, 0)])
    address, size, inside = address[held], size[held], inside[held]
    starts = np.concatenate([made.address, address + size])
    owner = np.concatenate([np.arange(len(made.size)), inside])
    order = np.lexsort((starts, owner))
    starts, owner = starts[order], owner[order]
    behind_block = np.concatenate([np.zeros(len(made.size), bool), np.ones(len(inside), bool)])[order]
    ends = _next_start(owner, inside, address, made)
    hole = np.where(ends > starts, ends - starts, 0).astype(np.int64)
    rest = behind_block & (hole <= UNSPLIT_BYTES) & (made.large & ~made.expandable)[owner]
    real = (hole > 0) & ~rest
    live = np.bincount(inside, size, len(made.size)).astype(np.int64)
    count = np.bincount(inside, minlength=len(made.size))
    return Layout(
        made.address, made.size, live, count, made.private, made.expandable, owner[real].astype(np.int64), hole[real]
    )


def _next_start(owner: Ints, inside: Ints, address: Addresses, made: _Made) -> Addresses:
    """End of the gap behind each segment start and block end (in order): the next block of the segment, or its end."""
    first = np.searchsorted(inside, np.arange(len(made.size)))
    nth = np.arange(len(owner)) - np.searchsorted(owner, owner)
    following = first[owner] + nth
    ends = (made.address + made.size.astype(np.uint64))[owner]
    has = (following < len(inside)) & (np.append(inside, -1)[np.minimum(following, len(inside))] == owner)
    return np.where(has, np.append(address, 0)[np.minimum(following, len(address))], ends)


def _end_segments(segments: pa.Table) -> _Made:
    address = np.asarray(segments["address"].fill_null(0), dtype=np.uint64)
    pool = np.array([p not in (None, "0,0") for p in segments["pool"].cast(pa.string()).to_pylist()], dtype=bool)
    large = np.array([k != "small" for k in segments["kind"].cast(pa.string()).to_pylist()], dtype=bool)
    size = integers(segments["size_bytes"])
    return _Made(address, size, pool, flags(segments["expandable"]), large, address)


def _segments_at(state: int, events: pa.Table, end: _Made) -> _Made:
    """Segments of fixed size that existed in a state; expandable ones as they are at the end."""
    action = events["action"].cast(pa.string())
    made, freed = flags(pc.equal(action, "segment_alloc")), flags(pc.equal(action, "segment_free"))
    if not (made | freed)[state + 1 :].any():
        return end
    address = np.asarray(events["address"].fill_null(0), dtype=np.uint64)
    fixed = np.flatnonzero(~end.expandable)
    found = _replay.lives(
        made, freed, address, integers(events["size_bytes"]), end.address[fixed], end.size[fixed],
    )  # fmt: skip
    there = np.flatnonzero((found.start <= state) & (found.end > state))
    known = found.block[there]
    last = known >= 0
    pick = fixed[known[last]]
    gone = there[~last]
    grown = np.flatnonzero(end.expandable)
    size = found.size[gone]
    private = _private_events(events)[np.maximum(found.event[gone], 0)] & (found.event[gone] >= 0)
    return _Made(
        np.concatenate([end.address[pick], found.address[gone], end.address[grown]]),
        np.concatenate([end.size[pick], size, end.size[grown]]),
        np.concatenate([end.private[pick], private, end.private[grown]]),
        np.concatenate([end.expandable[pick], np.zeros(len(gone), bool), end.expandable[grown]]),
        np.concatenate([end.large[pick], size > 2 << 20, end.large[grown]]),
        np.concatenate([end.owner[pick], found.address[gone], end.owner[grown]]),
    )


def _private_events(events: pa.Table) -> Flags:
    texts = events["pool"].cast(pa.string())
    return np.asarray(pc.not_equal(texts, "0,0").fill_null(False), dtype=bool)


def _with_mapped(state: int, events: pa.Table, made: _Made) -> _Made:
    """Expandable segments cut down to (or grown back to) the pages that were mapped in a state."""
    names = events["action"]
    if not made.expandable.any() or not events.num_rows:
        return made
    kinds = ["segment_map", "segment_unmap"]
    texts = names.cast(pa.string())
    later = np.flatnonzero(flags(pc.is_in(texts, pa.array(kinds))))
    later = later[later > state]
    if not len(later):
        return made
    mapped = flags(pc.equal(texts, "segment_map"))
    address = np.asarray(events["address"].fill_null(0), dtype=np.uint64)
    size = integers(events["size_bytes"]).astype(np.uint64)
    grown = np.flatnonzero(made.expandable)
    ranges = {int(i): [(int(made.address[i]), int(made.address[i]) + int(made.size[i]))] for i in grown}
    for row in later[::-1].tolist():  # few: the allocator maps pages rarely
        low, high = int(address[row]), int(address[row]) + int(size[row])
        home = max((i for i in ranges if int(made.address[i]) <= low), default=None, key=lambda i: made.address[i])
        if home is not None:
            ranges[home] = _cut(ranges[home], low, high) if mapped[row] else [*ranges[home], (low, high)]
    pieces = [(i, low, high) for i, spans in ranges.items() for low, high in _joined(spans)]
    fixed = np.flatnonzero(~made.expandable)
    index = np.concatenate([fixed, np.array([i for i, _, _ in pieces], dtype=np.int64)])
    starts = np.array([low for _, low, _ in pieces], dtype=np.uint64)
    sizes = np.array([high - low for _, low, high in pieces], dtype=np.int64)
    return _Made(
        np.concatenate([made.address[fixed], starts]), np.concatenate([made.size[fixed], sizes]),
        made.private[index], made.expandable[index], made.large[index], made.owner[index],
    )  # fmt: skip


def _cut(spans: list[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    return [piece for a, b in spans for piece in ((a, min(b, low)), (max(a, high), b)) if piece[1] > piece[0]]


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order; those that touch are one."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1]:
            result[-1] = result[-1][0], max(high, result[-1][1])
        elif high > low:
            result.append((low, high))
    return result


def expandable_any(segments: pa.Table) -> bool | None:
    """Whether the segments are expandable; None where the format does not say."""
    column = segments["expandable"]
    return None if column.null_count == len(column) else bool(flags(column).any())
