"""One rank's time as pieces of its own work and calls that it waits for, as a replay needs them.

The rank's *own time* is all that is not waiting at the end of a call: compute, copies, idle, and communication that ran
while the host had simply not issued anything else. It is cut into pieces wherever a call starts and wherever the rank
stood still until a call ended. A call starts when the piece before it is done and the call before it on its stream has
ended; where it followed that call at once, only the latter held it. Own time goes on when the calls it stood still for
have ended; calls that ended under compute hold nothing.

Method: interval algebra on the partition of the rank; whole columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Flags, Ints, take
from diagnose.analyses._work import NEVER
from diagnose.schema import COMM_PARTS, PARTS

OWN_PARTS = (*(p for p in PARTS if p not in COMM_PARTS), "begin", "under_comm")
"""Parts of own time. `begin`: how much later than the first rank this one begins; it takes the first piece, of no
length. `under_comm`: only communication ran, and its end was not what the rank went on with."""
AT_ONCE_NS = 10_000
"""A call that starts this soon after the one before on its stream was queued behind it; a guess, a few launches."""


class Timeline(NamedTuple):
    """Operations of one rank: pieces first, then a lag and a call per call. Times on the rank's own clock."""

    piece: Ints  # (n, 2) in order of time, first and last of no length
    parts: Ints  # (n, len(OWN_PARTS)) ns of each piece; rows sum to its length
    interval: Ints  # per piece: calls that started before it ends
    lag_ns: Ints  # per call: from what it waited for to its start
    before: Ints  # edges between operations (piece i: i; lag of call j: n + j; call j: n + calls + j)
    after: Ints


def timeline_of(start: Ints, end: Ints, stream: Ints, window: tuple[int, int], sets: dict[str, Ints]) -> Timeline:
    """Pieces and edges of calls in order of start, all inside `window`; `sets`: the rank's partition."""
    exposed = iv.clip(iv.merge(*(sets[part] for part in COMM_PARTS)), *window)
    standing = _standing_still(exposed, end)
    own = iv.complement(standing, *window)
    piece = iv.split_at(own, start)
    piece = np.concatenate(([[window[0]] * 2], piece, [[window[1]] * 2])).astype(np.int64)
    parts = np.stack(
        [iv.overlap_with(piece[:, 0], piece[:, 1], sets[p]) if p in sets else np.zeros(len(piece), np.int64)
         for p in OWN_PARTS], axis=1,
    )  # fmt: skip
    parts[:, -1] = (piece[:, 1] - piece[:, 0]) - parts[:, :-1].sum(axis=1)
    lag, edges = _edges(start, end, stream, piece, standing)
    return Timeline(piece, parts, np.searchsorted(start, piece[:, 1], "left"), lag, *edges)


def returned(end: Ints, last: Ints, sets: dict[str, Ints]) -> Ints:
    """When the rank went on after each call on the host; `last`: when the last rank came, on this rank's clock.

    The thread that moves the data may be scheduled milliseconds late to note its end. Where own work ran again before
    that, what the rank stood still for when the last rank came was over.
    """
    exposed = iv.merge(*(sets[part] for part in COMM_PARTS))
    at = iv.index_at(exposed, last)
    resumed = take(exposed[:, 1], at, NEVER)
    return np.where((at >= 0) & (resumed < end), resumed, end)


def _standing_still(exposed: Ints, end: Ints) -> Ints:
    """From where only communication ran to the last end of a call before something else ran again."""
    if not len(exposed) or not len(end):
        return iv.EMPTY
    ends = np.sort(end)
    last = np.searchsorted(ends, exposed[:, 1], "right") - 1
    until = np.where(last >= 0, ends[np.maximum(last, 0)], exposed[:, 0])
    return iv.union(exposed[:, 0], np.maximum(until, exposed[:, 0]))


def _edges(start: Ints, end: Ints, stream: Ints, piece: Ints, standing: Ints) -> tuple[Ints, tuple[Ints, Ints]]:
    pieces, calls = len(piece), len(start)
    pairs = [(np.arange(pieces - 1), np.arange(1, pieces))]
    order = np.argsort(end, kind="stable")
    held = iv.index_at(standing, end - 1)  # the wait that this call's end lies in
    waits = np.flatnonzero(held >= 0)
    resumes = np.searchsorted(piece[:, 0], standing[:, 1], "left") if len(standing) else np.zeros(0, np.int64)
    pairs.append((pieces + calls + waits, np.minimum(resumes[held[waits]], pieces - 1)))

    before = _on_stream(start, end, stream)
    queued = (before >= 0) & (start - end[before] < AT_ONCE_NS)
    inside = iv.index_at(standing, start - 1) >= 0  # started while the rank stood still
    ready = np.searchsorted(piece[:, 1], start, "right") - 1
    free = ~queued
    latest = order[np.maximum(np.searchsorted(end[order], start, "right") - 1, 0)]
    follows = free & inside & (end[latest] <= start) & (end[latest] > piece[ready, 1])
    ended = np.where(free, piece[ready, 1], np.iinfo(np.int64).min)
    ended = np.maximum(ended, np.where(before >= 0, end[before], np.iinfo(np.int64).min))
    ended = np.maximum(ended, np.where(follows, end[latest], np.iinfo(np.int64).min))
    lags = pieces + np.arange(calls)
    pairs += [
        (ready[free], lags[free]),
        (pieces + calls + before[before >= 0], lags[before >= 0]),
        (pieces + calls + latest[follows], lags[follows]),
        (lags, lags + calls),
    ]
    both = tuple(np.concatenate([pair[side] for pair in pairs]).astype(np.int64) for side in (0, 1))
    return np.maximum(start - ended, 0), (both[0], both[1])


def _on_stream(start: Ints, end: Ints, stream: Ints) -> Ints:
    """The call before on the same stream, where it had ended; -1: none."""
    order = np.lexsort((start, stream))
    before = np.full(len(start), -1)
    same = stream[order][1:] == stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    ended: Flags = (before >= 0) & (end[before] <= start)
    return np.where(ended, before, -1)
