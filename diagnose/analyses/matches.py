"""Which calls on different ranks are one collective, how we know, and why the rest could not be told.

Levels, the first that holds for a group: `comm_id` (the key that PyTorch computes on every rank), `seq` (group, its
ranks, sequence number), `order` (operation and size in order, aligned by their ends; starts of recordings differ),
`pair` (sends and receives of one ordered pair of ranks, in order). A level that some rank of a group contradicts is
not used for that group: sequence numbers that are doubled, skipped or restarted are real. Calls of no named group are
taken for calls of all ranks only where their ends agree.
`seen_count` may be below `expected_count`: ranks whose recording was not given, or cut earlier. A match says that the
ranks met in this call, not that anyone was late.

Method: `_instances` for keys, `_match_order` for order and pairs; linear but for sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, encode, flags, integers, label
from diagnose.analyses._instances import Rows, dense_pair, instances, runs
from diagnose.analyses._match_groups import groups_of
from diagnose.analyses._match_order import by_order, by_pair
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
    group, size, named = groups_of(calls_on_device, members, ranks, rank)
    rows = _rows(calls_on_device, rank, group)
    found = _by_key(rows, calls_on_device, group, named)
    on_host = flags(calls_on_device["stream"].is_null())
    instance, doubtful = by_order(rows, _settled(found, group), named, on_host)
    found.contradicted[doubtful] = True
    _add(found, instance, LEVELS.index("order"))
    _add(found, by_pair(rows, calls_on_device, ranks), LEVELS.index("pair"))
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
        dense_key[chosen] = dense_pair(*(k[chosen] for k in key))
        instance, doubtful = instances(rows, dense_key)
        found.contradicted[doubtful] = True
        _add(found, instance, level)
    return found


def _settled(found: _Found, group: Ints) -> Flags:
    """Rows of groups that a higher level has matched."""
    return np.isin(group, np.unique(group[found.instance >= 0]))


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
