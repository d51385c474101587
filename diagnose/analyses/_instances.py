"""Call instances from keys that ranks share, each key checked before it is trusted.

A key (Comms Id; group and sequence number) names an instance where every rank holds it once, or equally often (then
counted from the end), and operation and size agree. That is not yet proof: numbering that skips, doubles or restarts
on one rank still pairs calls of one kind. So ends are compared, too: after each rank's own constant clock offset, all
ranks leave a synchronising call at nearly the same moment. A group in which a rank fails this is not trusted at all.

Method: sorting by composite keys and reductions over runs; no loop over calls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._alignment import END_SPREAD_NS
from diagnose.analyses._columns import Flags, Ints

MAX_STRANGE_SHARE = 0.02
"""A rank with more than this share of keyed calls that end elsewhere, or cannot be told apart, is misnumbered."""
_SPREADS = 10


class Rows(NamedTuple):
    """Calls of all ranks; all arrays of one length."""

    rank: Ints  # dense
    group: Ints  # dense code of (name, ranks)
    op: Ints  # index in VOCABULARY
    size: Ints  # -1 unknown
    sized: Flags  # all ranks of a call say the same size
    sync: Flags  # no rank leaves before the last one arrived
    start: Ints
    end: Ints

    @property
    def member(self) -> Ints:
        """One number per (group, rank)."""
        return self.group * (int(self.rank.max(initial=0)) + 1) + self.rank

    def take(self, chosen: Ints) -> Rows:
        """Some of the rows."""
        return Rows(
            self.rank[chosen],
            self.group[chosen],
            self.op[chosen],
            self.size[chosen],
            self.sized[chosen],
            self.sync[chosen],
            self.start[chosen],
            self.end[chosen],
        )


class Runs(NamedTuple):
    """Rows sorted by a code, and where each code's run begins."""

    order: Ints
    first: Ints
    of_row: Ints  # run of each row, in table order

    @property
    def size_of(self) -> Ints:
        """Rows of each run."""
        return np.diff(np.append(self.first, len(self.order)))


def runs(code: Ints, *then: Ints) -> Runs:
    """Runs of equal `code`, rows within one ordered by `then` (the first counts most)."""
    order = sorted_by(code, *then)
    new = np.ones(len(order), bool)
    new[1:] = code[order][1:] != code[order][:-1]
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(new) - 1
    return Runs(order, np.flatnonzero(new), index)


def dense_pair(first: np.ndarray, second: np.ndarray | None = None) -> Ints:
    """Dense code of a value, or of a pair of values."""
    if second is None:
        return np.unique(first, return_inverse=True)[1].astype(np.int64)
    low = int(second.min())
    return np.unique(first * (int(second.max()) - low + 1) + (second - low), return_inverse=True)[1].astype(np.int64)


def sorted_by(*keys: Ints) -> Ints:
    """Rows in order of the keys, the first counts most; equal ones stay in order. As `numpy.lexsort`, several times
    faster where value and row number fit one 64-bit number: then plain numbers are sorted."""
    count = len(keys[0])
    order: Ints | None = None
    bits = max(count - 1, 1).bit_length()
    for key in reversed(keys):
        low, high = (int(key.min()), int(key.max())) if count else (0, 0)
        mine = key if order is None else key[order]
        if bits + (high - low).bit_length() < 63:
            packed = ((mine - low) << bits) | np.arange(count)
            packed.sort()
            place = packed & ((1 << bits) - 1)
        else:
            place = np.argsort(mine, kind="stable")
        order = place if order is None else order[place]
    return np.arange(count) if order is None else order


def instances(rows: Rows, key: Ints) -> tuple[Ints, Flags]:
    """(instance per row or -1, groups that are not trusted as a flag per row). `key`: dense, equal on all ranks of a
    call; -1: none."""
    instance = np.full(len(key), -1, np.int64)
    doubtful = np.zeros(len(key), bool)
    keyed = np.flatnonzero(key >= 0)
    if not len(keyed):
        return instance, doubtful
    mine, code = rows.take(keyed), key[keyed]
    found, ambiguous = _told_apart(mine, code)
    found = np.where(_agree(mine, found), found, -1)
    strange = ambiguous | ((found < 0) & ~ambiguous)
    several = found >= 0
    several[several] = (
        runs(found[several]).size_of[runs(found[several]).of_row] > 1 if several.any() else several[several]
    )
    strange |= _end_elsewhere(mine, found, several)
    instance[keyed] = np.where(strange, -1, found)
    doubtful[keyed] = _misnumbered(mine, strange, several | strange)
    instance[doubtful] = -1
    return instance, doubtful


def _told_apart(rows: Rows, code: Ints) -> tuple[Ints, Flags]:
    """Instance per row, and rows whose key a rank repeats and others do not repeat equally often."""
    by_rank = runs(code * (int(rows.rank.max()) + 1) + rows.rank, rows.start)
    count = by_rank.size_of
    if count.max() == 1:
        return code, np.zeros(len(code), bool)
    place = np.empty(len(code), np.int64)  # counted from the end
    place[by_rank.order] = np.repeat(by_rank.first + count, count) - 1 - np.arange(len(code))
    by_key = runs(code)
    mine = count[by_rank.of_row]
    low = np.minimum.reduceat(mine[by_key.order], by_key.first)[by_key.of_row]
    high = np.maximum.reduceat(mine[by_key.order], by_key.first)[by_key.of_row]
    return code * (int(place.max()) + 1) + place, low != high


def _agree(rows: Rows, instance: Ints) -> Flags:
    """Whether all ranks of each row's instance name one operation and, where they must, one size."""
    of = runs(instance)

    def one_value(values: Ints, known: Flags) -> Flags:
        top = np.maximum.reduceat(np.where(known, values, -1)[of.order], of.first)[of.of_row]
        low = np.minimum.reduceat(np.where(known, values, np.iinfo(np.int64).max)[of.order], of.first)[of.of_row]
        agreed: Flags = (top == low) | (top < 0)
        return agreed

    return one_value(rows.op, rows.op > 0) & one_value(rows.size, (rows.size >= 0) & rows.sized)


def _end_elsewhere(rows: Rows, instance: Ints, several: Flags) -> Flags:
    """Synchronising rows of instances of several ranks that end too far from the others, clocks corrected."""
    result = np.zeros(len(instance), bool)
    chosen = np.flatnonzero(several & rows.sync)
    if not len(chosen):
        return result
    part, of = rows.take(chosen), instance[chosen]
    member = runs(part.member)
    end = part.end.copy()
    for _ in range(2):
        away = end - middle(end, of)
        end -= _middles(away, member)[member.of_row]
    away = np.abs(end - middle(end, of))
    at_once = runs(of)
    shortest = np.minimum.reduceat((part.end - part.start)[at_once.order], at_once.first)[at_once.of_row]
    typical = middle(away, part.group)
    limit = np.maximum(np.maximum(END_SPREAD_NS, _SPREADS * typical), shortest)
    result[chosen] = away > limit
    return result


def middle(values: Ints, code: Ints) -> Ints:
    """Per row, the (lower) median of the values of its code."""
    of = runs(code, values)
    found: Ints = values[of.order][of.first + (of.size_of - 1) // 2][of.of_row]
    return found


def _middles(values: Ints, member: Runs) -> Ints:
    """Lower median per run."""
    order = sorted_by(member.of_row, values)
    found: Ints = values[order][member.first + (member.size_of - 1) // 2]
    return found


def _misnumbered(rows: Rows, strange: Flags, judged: Flags) -> Flags:
    """Rows of groups in which some rank has too large a share of strange rows."""
    member = rows.member
    codes, place = np.unique(member, return_inverse=True)
    bad = np.bincount(place, weights=strange, minlength=len(codes))
    all_ = np.bincount(place, weights=judged, minlength=len(codes))
    misnumbered = bad > MAX_STRANGE_SHARE * np.maximum(all_, 1)
    group = codes // (int(rows.rank.max(initial=0)) + 1)
    flagged: Flags = np.isin(rows.group, group[misnumbered])
    return flagged
