"""Calls put together without a key: groups whose order of calls tells, and sends with their receives.

Where a rank of the group contradicts (ends that do not fit one group), none of its calls is put together.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._alignment import Calls, align
from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers
from diagnose.analyses._instances import Rows, dense_pair, runs
from diagnose.analyses._operations import code

SPREAD_OF_UNNAMED_NS = 20_000
"""Calls without a group must end this close together, or within a twentieth of their duration, to be called one."""
HOST_TOLERANCE_NS = 1_000_000
MET_SHARE = 0.95
"""Of the calls of one sequence, those in which no rank left early; recordings of one gloo group reach 1.0."""


def by_order(rows: Rows, settled: Flags, named: Flags, on_host: Flags) -> tuple[Ints, Flags]:
    """Groups that no key has settled: the order of calls, aligned to the rank that has most of them.

    (Instance or -1, whether its group was contradicted) per row."""
    instance, contradicted = np.full(len(rows.op), -1, np.int64), np.zeros(len(rows.op), bool)
    left = np.flatnonzero(~settled & (rows.op != code("p2p")) & (rows.op > 0))
    if not len(left):
        return instance, contradicted
    token = dense_pair(rows.op[left], np.where(rows.sized[left], rows.size[left], -1))
    lists = runs(rows.member[left], rows.end[left])
    starts, counts = lists.first, lists.size_of
    owner = rows.group[left[lists.order[starts]]]
    base = 0
    for one in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == one)
        if len(mine) < 2:
            continue
        parts = [left[lists.order[starts[i] : starts[i] + counts[i]]] for i in mine]
        tokens = [token[lists.order[starts[i] : starts[i] + counts[i]]] for i in mine]
        spoken = [Calls(rows.start[p], rows.end[p], t) for p, t in zip(parts, tokens, strict=True)]
        how = {"named": bool(named[parts[0][0]]), "on_host": bool(on_host[np.concatenate(parts)].any())}
        if _aligned(spoken, parts, instance, base, **how):
            base += max(len(p) for p in parts)
        else:
            for part in parts:
                instance[part], contradicted[part] = -1, True
    return instance, contradicted


def _aligned(spoken: list[Calls], parts: list[Ints], instance: Ints, base: int, *, named: bool, on_host: bool) -> bool:
    """Write the instance of each call of one group; False where the ends do not fit one group."""
    longest = max(range(len(parts)), key=lambda i: len(parts[i]))
    reference = spoken[longest]
    if on_host:
        return _met_on_host(spoken, parts, instance, base)
    instance[parts[longest]] = base + np.arange(len(parts[longest]))
    typical = float(np.median(reference.end - reference.start))
    for i, part in enumerate(parts):
        if i == longest:
            continue
        place, spread = align(spoken[i], reference)
        if not named and spread > max(SPREAD_OF_UNNAMED_NS, typical / 20):
            return False
        if _by_chance(place, len(reference.end), spread):
            return False
        instance[part] = np.where(place >= 0, base + place, -1)
    return True


def _by_chance(place: Ints, others: int, spread_ns: int) -> bool:
    """Few calls met, and not closely: calls in a rhythm do that under a wrong offset, too."""
    met = int((place >= 0).sum())
    return 2 * met < min(len(place), others) and spread_ns > SPREAD_OF_UNNAMED_NS


def _met_on_host(spoken: list[Calls], parts: list[Ints], instance: Ints, base: int) -> bool:
    """Host communication (gloo): worker threads leave a call whenever they are scheduled, so ends say little. One
    sequence of operations on all ranks, and nobody leaving before the last has come, make it one group."""
    first = spoken[0].token
    if any(not np.array_equal(calls.token, first) for calls in spoken):
        return False
    last_start = np.max([calls.start for calls in spoken], axis=0)
    first_end = np.min([calls.end for calls in spoken], axis=0)
    if np.mean(last_start <= first_end + HOST_TOLERANCE_NS) < MET_SHARE:
        return False
    for part in parts:
        instance[part] = base + np.arange(len(part))
    return True


def by_pair(rows: Rows, calls: pa.Table, ranks: Ints) -> Ints:
    """Sends and receives of each ordered pair of ranks: instance or -1 per row."""
    instance = np.full(len(rows.op), -1, np.int64)
    names = dictionary(calls["direction"])
    sends = np.array([n == "send" for n in names], bool)[codes(calls["direction"])]
    receives = np.array([n == "recv" for n in names], bool)[codes(calls["direction"])]
    peer = integers(calls["peer"], -1)
    place = np.searchsorted(ranks, peer)
    place = np.where((place < len(ranks)) & (ranks[np.minimum(place, len(ranks) - 1)] == peer), place, -1)
    left = np.flatnonzero((sends | receives) & (place >= 0) & (rows.op == code("p2p")))
    if not len(left):
        return instance
    source = np.where(sends, rows.rank, place)[left]
    target = np.where(sends, place, rows.rank)[left]
    size = dense_pair(rows.size)
    pairs = runs(source * len(ranks) + target, rows.end[left])
    for begin, count in zip(pairs.first.tolist(), pairs.size_of.tolist(), strict=True):
        both = left[pairs.order[begin : begin + count]]
        sent, received = both[sends[both]], both[receives[both]]
        spoken = [Calls(rows.start[p], rows.end[p], size[p]) for p in (received, sent)]
        at, spread = align(*spoken)
        if not _by_chance(at, len(sent), spread):
            instance[sent] = begin + np.arange(len(sent))
            instance[received] = np.where(at >= 0, begin + at, -1)
    return instance
