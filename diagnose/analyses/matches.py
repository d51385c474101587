"""Which calls on different ranks are one collective, how we know, and why the rest could not be told.

Levels, the first that holds for a group: `comm_id` (the key that PyTorch computes on every rank), `seq` (group, its
ranks, sequence number), `order` (operation and size in order, aligned by their ends; starts of recordings differ),
`pair` (sends and receives of one ordered pair of ranks, in order). A level that some rank of a group contradicts is
not used for that group: sequence numbers that are doubled, skipped or restarted are real. Calls of no named group are
taken for calls of all ranks only where their ends agree.
`seen_count` may be below `expected_count`: ranks whose recording was not given, or cut earlier. A match says that the
ranks met in this call, not that anyone was late.

Method: `_instances` for keys, `_alignment` for order; linear but for sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._alignment import Calls, align
from diagnose.analyses._columns import Flags, Ints, codes, dense, dictionary, encode, flags, integers, label
from diagnose.analyses._instances import Rows, instances, runs
from diagnose.analyses._operations import VOCABULARY, code
from diagnose.schema import INT32, INT64, LABEL, table

LEVELS = ("comm_id", "seq", "order", "pair")
REASONS = ("peers_absent", "window_edge", "inconsistent", "no_peer", "no_counterpart")
SCHEMA = table(
    "communication kernel, with the call instance it belongs to",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("match", INT64, "call instance, one number on all its ranks; null: not matched"),
    ("level", LABEL, "comm_id | seq | order | pair"),
    ("expected_count", INT32, "ranks of the group; null where unknown"),
    ("seen_count", INT32, "ranks matched"),
    (
        "reason",
        LABEL,
        "why not: peers_absent (no recording of another rank of the group) | window_edge (outside the time that the"
        " recordings share) | inconsistent (keys or ends contradict) | no_peer (send or receive that names no peer) |"
        " no_counterpart",
    ),
)

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""No rank leaves these before the last one has arrived. Roots of broadcasts and reduces may."""
SPREAD_OF_UNNAMED_NS = 20_000
"""Calls without a group must end this close together, or within a twentieth of their duration, to be called one."""


HOST_TOLERANCE_NS = 1_000_000
MET_SHARE = 0.95
"""Of the calls of one sequence, those in which no rank left early; recordings of one gloo group reach 1.0."""


class _Found(NamedTuple):
    """Instance (-1: none) and index in LEVELS per row, and groups that were contradicted."""

    instance: Ints
    level: Ints
    contradicted: Flags


def matches(calls_on_device: pa.Table, members: pa.Table, files: pa.Table) -> pa.Table:
    """One row per row of `calls_on_device`, in its order."""
    if not calls_on_device.num_rows:
        return SCHEMA.empty()
    ranks, rank = encode(calls_on_device["rank"])
    group, size, named = _groups(calls_on_device, members, ranks, rank)
    rows = _rows(calls_on_device, rank, group)
    found = _by_key(rows, calls_on_device, group, named)
    _by_order(rows, found, group, named, flags(calls_on_device["stream"].is_null()))
    _by_pair(rows, found, calls_on_device, ranks)
    world = _world_size(files)
    expected = np.where(named, size, world)
    expected = np.where(found.level == LEVELS.index("pair"), 2, expected)
    return _table(calls_on_device, rows, found, expected)


def _rows(calls: pa.Table, rank: Ints, group: Ints) -> Rows:
    vocabulary = np.array([code(name) for name in dictionary(calls["op"])], np.int64)
    op = vocabulary[codes(calls["op"])]
    start = integers(calls["ts_ns"])
    synchronising = np.isin(op, [code(name) for name in SYNCHRONISING])
    return Rows(
        rank,
        group,
        op,
        integers(calls["size_bytes"], -1),
        op != code("all_to_all"),
        synchronising,
        start,
        start + integers(calls["dur_ns"]),
    )


def _groups(calls: pa.Table, members: pa.Table, ranks: Ints, rank: Ints) -> tuple[Ints, Ints, Flags]:
    """(dense code of (name, ranks), number of ranks or -1, whether named) per row.

    One name may stand for other ranks on another rank, so the ranks count as part of the name where they are known.
    """
    names, name = dictionary(calls["group"]), codes(calls["group"])
    place_of = {r: i for i, r in enumerate(ranks.tolist())}
    known: dict[tuple[int, str], tuple[bytes, int]] = {}
    columns = (members[c].to_pylist() for c in ("rank", "group", "size"))
    lists = members["ranks"].combine_chunks() if members.num_rows else members["ranks"]
    for row, (owner, text, count) in enumerate(zip(*columns, strict=True)):
        listed = lists[row].values
        who = b"" if listed is None else np.asarray(listed).tobytes()
        if owner in place_of and (who or (place_of[owner], text) not in known):
            known[place_of[owner], text] = (who, len(listed) if who else (count if count is not None else -1))
    pair = (name + 1) * len(ranks) + rank
    used, index = dense(pair, (len(names) + 1) * len(ranks))
    seen: dict[tuple[int, bytes], int] = {}
    code_of, size_of = np.empty(len(used), np.int64), np.full(len(used), -1, np.int64)
    for i, value in enumerate(used.tolist()):
        text, owner = value // len(ranks) - 1, value % len(ranks)
        who, size_of[i] = known.get((owner, names[text]), (b"", -1)) if text >= 0 else (b"", -1)
        code_of[i] = seen.setdefault((text, who), len(seen))
    recorded = integers(calls["group_size"], -1)
    size = np.where(size_of[index] >= 0, size_of[index], recorded)
    return code_of[index], size, name >= 0


def _by_key(rows: Rows, calls: pa.Table, group: Ints, named: Flags) -> _Found:
    """Instances by Comms Id, then by group and sequence number."""
    p2p = rows.op == code("p2p")
    count = len(group)
    found = _Found(np.full(count, -1, np.int64), np.full(count, -1, np.int64), np.zeros(count, bool))
    comm = np.asarray(calls["comm_id"].fill_null(0)).astype(np.uint64)
    seq = integers(calls["seq"], -1)
    with_seq = named & ~p2p & flags(calls["seq"].is_valid())
    for level, (key, usable) in enumerate((((comm,), (comm != 0) & ~p2p), ((group, seq), with_seq))):
        left = usable & (found.instance < 0) & ~_settled(found, group)
        dense_key = np.full(count, -1, np.int64)
        chosen = np.flatnonzero(left)
        if not len(chosen):
            continue
        dense_key[chosen] = _dense_pair(*(k[chosen] for k in key))
        instance, doubtful = instances(rows, dense_key)
        found.contradicted[doubtful] = True
        _add(found, instance, level)
    return found


def _settled(found: _Found, group: Ints) -> Flags:
    """Rows of groups that a higher level has matched."""
    return np.isin(group, np.unique(group[found.instance >= 0]))


def _dense_pair(first: np.ndarray, second: np.ndarray | None = None) -> Ints:
    """Dense code of a value, or of a pair of values."""
    if second is None:
        return np.unique(first, return_inverse=True)[1].astype(np.int64)
    low = int(second.min())
    return np.unique(first * (int(second.max()) - low + 1) + (second - low), return_inverse=True)[1].astype(np.int64)


def _add(found: _Found, instance: Ints, level: int) -> None:
    """Number new instances after those found before; instances of one row are none."""
    rows = np.flatnonzero(instance >= 0)
    if not len(rows):
        return
    of = runs(instance[rows])
    several = of.size_of[of.of_row] > 1
    rows = rows[several]
    if len(rows):
        number = np.unique(instance[rows], return_inverse=True)[1]
        found.instance[rows] = number + int(found.instance.max()) + 1
        found.level[rows] = level


def _by_order(rows: Rows, found: _Found, group: Ints, named: Flags, on_host: Flags) -> None:
    """Groups that no key has settled: the order of calls, aligned to the rank that has most of them."""
    left = np.flatnonzero(~_settled(found, group) & (rows.op != code("p2p")) & (rows.op > 0))
    if not len(left):
        return
    token = _dense_pair(rows.op[left], np.where(rows.sized[left], rows.size[left], -1))
    instance = np.full(len(group), -1, np.int64)
    lists = runs(rows.member[left], rows.end[left])
    starts, counts = lists.first, lists.size_of
    owner = group[left[lists.order[starts]]]
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
                instance[part], found.contradicted[part] = -1, True
    _add(found, instance, LEVELS.index("order"))


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
        instance[part] = np.where(place >= 0, base + place, -1)
    return True


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


def _by_pair(rows: Rows, found: _Found, calls: pa.Table, ranks: Ints) -> None:
    """Sends and receives of each ordered pair of ranks."""
    names = dictionary(calls["direction"])
    sends = np.array([n == "send" for n in names], bool)[codes(calls["direction"])]
    receives = np.array([n == "recv" for n in names], bool)[codes(calls["direction"])]
    peer = integers(calls["peer"], -1)
    place = np.searchsorted(ranks, peer)
    place = np.where((place < len(ranks)) & (ranks[np.minimum(place, len(ranks) - 1)] == peer), place, -1)
    left = np.flatnonzero((sends | receives) & (place >= 0) & (rows.op == code("p2p")))
    if not len(left):
        return
    source = np.where(sends, rows.rank, place)[left]
    target = np.where(sends, place, rows.rank)[left]
    instance = np.full(len(rows.op), -1, np.int64)
    size = _dense_pair(rows.size)
    pairs = runs(source * len(ranks) + target, rows.end[left])
    for begin, count in zip(pairs.first.tolist(), pairs.size_of.tolist(), strict=True):
        both = left[pairs.order[begin : begin + count]]
        sent, received = both[sends[both]], both[receives[both]]
        spoken = [Calls(rows.start[p], rows.end[p], size[p]) for p in (received, sent)]
        at = align(*spoken).place
        instance[sent] = begin + np.arange(len(sent))
        instance[received] = np.where(at >= 0, begin + at, -1)
    _add(found, instance, LEVELS.index("pair"))


def _world_size(files: pa.Table) -> int:
    sizes = set(files["world_size"].drop_null().to_pylist())
    return int(sizes.pop()) if len(sizes) == 1 else -1


def _table(calls: pa.Table, rows: Rows, found: _Found, expected: Ints) -> pa.Table:
    matched = found.instance >= 0
    seen = np.zeros(len(matched), np.int64)
    if matched.any():
        of = runs(found.instance[matched])
        seen[matched] = of.size_of[of.of_row]
    return SCHEMA.build(
        {
            "event_id": calls["event_id"],
            "rank": calls["rank"],
            "match": np.ma.array(found.instance, mask=~matched),
            "level": label(list(LEVELS), found.level),
            "expected_count": np.ma.array(expected, mask=expected < 0),
            "seen_count": np.ma.array(seen, mask=~matched),
            "reason": label(list(REASONS), np.where(matched, -1, _reasons(rows, found, calls))),
        }
    )


def _reasons(rows: Rows, found: _Found, calls: pa.Table) -> Ints:
    """Index in REASONS as if no row were matched."""
    of = runs(rows.group)
    per_group = [np.minimum.reduceat(rows.rank[of.order], of.first), np.maximum.reduceat(rows.rank[of.order], of.first)]
    alone = (per_group[0] == per_group[1])[of.of_row]
    lists = runs(rows.member)
    first = np.minimum.reduceat(rows.start[lists.order], lists.first)
    last = np.maximum.reduceat(rows.end[lists.order], lists.first)
    groups = rows.group[lists.order[lists.first]]
    low, high = (
        np.full(int(groups.max()) + 1, np.iinfo(np.int64).min),
        np.full(int(groups.max()) + 1, np.iinfo(np.int64).max),
    )
    np.maximum.at(low, groups, first)
    np.minimum.at(high, groups, last)
    outside = (rows.end <= low[rows.group]) | (rows.start >= high[rows.group])
    p2p = rows.op == code("p2p")
    return np.select(
        [p2p & ~flags(calls["peer"].is_valid()), alone & ~p2p, found.contradicted, outside],
        [REASONS.index(r) for r in ("no_peer", "peers_absent", "inconsistent", "window_edge")],
        REASONS.index("no_counterpart"),
    )


assert set(SYNCHRONISING) <= set(VOCABULARY)
