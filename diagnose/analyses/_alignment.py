"""The same calls in the recordings of two ranks, told by order and time: where keys are missing or cannot be trusted.

Both ranks ran one sequence of calls, but each recording starts and stops elsewhere, may lack rows in the middle, and
its clock is off by an unknown constant. The end of a synchronising call is nearly the same moment on all ranks, so:
take a few candidate shifts, counted from the end of the recordings, read the clock offset off each, and keep the
offset under which most calls of one kind end together; closest ends, then smallest offset decide between equals.
Calls that repeat with a perfectly constant period and without jitter cannot be told apart by anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Ints

END_SPREAD_NS = 50_000
"""Ends of one call differ by less than this, or by less than its transfer: 1 to 7 us on one node were measured."""
_CLOSE_NS = 20_000
_SPREADS = 10
_MOST_SHIFTS = 12
_SAMPLE = 512


class Calls(NamedTuple):
    """Calls of one rank in order of end; all arrays of one length."""

    start: Ints
    end: Ints
    token: Ints  # equal for calls of one kind (operation, size)


class Alignment(NamedTuple):
    """Place in the reference of each call (-1: none), and how close the ends came (median, ns)."""

    place: Ints
    spread_ns: int


def align(calls: Calls, reference: Calls) -> Alignment:
    """Which call of `reference` each of `calls` is."""
    best: tuple[int, int, int] | None = None
    found = np.full(len(calls.end), -1, np.int64)
    apart = np.zeros(len(calls.end), np.int64)
    shortest = min(len(calls.end), len(reference.end))
    for offset in _candidates(calls, reference):
        place, away = _nearest(calls, reference, offset)
        matched = int((place >= 0).sum())
        spread = int(np.median(np.abs(away[place >= 0]))) if matched else np.iinfo(np.int64).max
        score = (-matched, spread, abs(offset))
        if best is None or _better(score, best):
            best, found, apart = score, place, np.abs(away)
        if matched >= 0.99 * shortest and spread <= _CLOSE_NS:
            break
    spread = best[1] if best is not None else 0
    # A call whose counterpart was lost finds another one nearby: its ends are apart while those of the rest are close.
    odd = apart > max(END_SPREAD_NS, _SPREADS * spread)
    return Alignment(np.where(odd, -1, found), spread)


def _better(score: tuple[int, int, int], best: tuple[int, int, int]) -> bool:
    """More calls by a clear margin, else ends twice as close, else the smaller offset."""
    if abs(score[0] - best[0]) > 0.02 * max(-best[0], 1):
        return score[0] < best[0]
    if score[1] * 2 < best[1] or best[1] * 2 < score[1]:
        return score[1] < best[1]
    return (score[0], score[2]) < (best[0], best[2])


def _candidates(calls: Calls, reference: Calls) -> Iterator[int]:
    """Clock offsets to try: the shifts 0, 1, -1, 2, ... counted from the end, then clocks that agree."""
    n, m = len(calls.end), len(reference.end)
    if not n or not m:
        return
    tried = 0
    most = max(_MOST_SHIFTS, abs(n - m) + 2)
    for shift in sorted(range(-most, most + 1), key=abs):
        skip, lead = max(shift, 0), max(-shift, 0)
        pairs = min(n - skip, m - lead, _SAMPLE)
        if pairs < 1:
            continue
        own = slice(n - skip - pairs, n - skip)
        other = slice(m - lead - pairs, m - lead)
        same = calls.token[own] == reference.token[other]
        if same.mean() >= 0.5:
            tried += 1
            yield int(np.median((calls.end[own] - reference.end[other])[same]))
        if tried > 2 * _MOST_SHIFTS:
            break
    yield 0


def _nearest(calls: Calls, reference: Calls, offset: int) -> tuple[Ints, Ints]:
    """Place of each call in the reference under one offset, one to one, and how far the ends are apart."""
    moved = calls.end - offset
    first = min(int(moved.min()), int(reference.end.min()))
    width = 2 * (max(int(moved.max()), int(reference.end.max())) - first + 1)  # no kind reaches into the next
    # Calls of other kinds may end in between, on other streams: every kind is searched by itself.
    known = reference.token * width + reference.end - first
    order = np.argsort(known, kind="stable")
    known, wanted = known[order], calls.token * width + moved - first
    after = np.clip(np.searchsorted(known, wanted), 0, len(known) - 1)
    before = np.maximum(after - 1, 0)
    closer = np.abs(known[before] - wanted) <= np.abs(known[after] - wanted)
    place = order[np.where(closer, before, after)]
    away = moved - reference.end[place]
    shorter = np.minimum(calls.end - calls.start, (reference.end - reference.start)[place])
    fits = (calls.token == reference.token[place]) & (np.abs(away) <= np.maximum(END_SPREAD_NS, shorter))
    ranked = np.lexsort((np.abs(away), place, ~fits))
    nearest = np.ones(len(ranked), bool)
    nearest[1:] = place[ranked][1:] != place[ranked][:-1]
    kept = np.zeros(len(ranked), bool)
    kept[ranked[nearest]] = True
    return np.where(fits & kept, place, -1), away
