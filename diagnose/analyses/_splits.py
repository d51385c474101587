"""Split sizes of all-to-alls: which rank a call's bytes go to and come from.

Sizes are rows of the tensor; bytes per row follow from the whole message. Writers cut lists of more than 30 sizes
("..."): then bytes per row are unknown, and nothing is told. Without a list the message is taken for even only where
every rank seen sends as much as it receives. Places in a list are places in the group, whose ranks must be known (a
group as large as the job holds all ranks).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers
from diagnose.analyses._instances import runs

SPLITS = ("recorded", "even")


class Exchanges(NamedTuple):
    """All-to-alls whose group is known, and what each sends and receives per rank of the group."""

    row: Ints  # of calls_on_device, ascending
    even: Flags  # per row: no list, sizes are equal
    sent: Pieces
    received: Pieces


class Pieces(NamedTuple):
    """Parts of messages; all arrays of one length."""

    of: Ints  # index in Exchanges.row
    peer: Ints  # global rank of the other end
    size_bytes: Ints


class _Groups(NamedTuple):
    """Ranks of groups one behind the other."""

    of_row: Ints  # group of each row, -1: ranks unknown
    first: Ints
    size: Ints
    ranks: Ints


def exchanges(calls: pa.Table, matches: pa.Table, members: pa.Table, files: pa.Table) -> Exchanges:
    """All-to-alls of `calls_on_device` whose bytes per rank are told, at least one way."""
    chosen = np.array([name == "all_to_all" for name in dictionary(calls["op"])], bool)[codes(calls["op"])]
    row = np.flatnonzero(chosen)
    mine = calls.take(pa.array(row))
    groups = _groups(mine, members, _world(files))
    row, mine = row[groups.of_row >= 0], mine.filter(pa.array(groups.of_row >= 0))
    groups = groups._replace(of_row=groups.of_row[groups.of_row >= 0])
    even = _even(mine, integers(matches["match"], -1)[row], groups)
    sent = _pieces(mine["in_splits"], integers(mine["size_bytes"], -1), even, groups)
    received = _pieces(mine["out_splits"], integers(mine["received_bytes"], -1), even, groups)
    return Exchanges(row, even, sent, received)


def leaving_share(calls: pa.Table, members: pa.Table) -> NDArray[np.float64]:
    """Per call, bytes for other ranks over all bytes; NaN where no list tells."""
    groups = _groups(calls, members)
    none = np.zeros(calls.num_rows, bool)
    parts = _pieces(calls["in_splits"], integers(calls["size_bytes"], -1), none, groups)
    rank = integers(calls["rank"])
    total = np.bincount(parts.of, parts.size_bytes, calls.num_rows)
    away = np.bincount(parts.of, parts.size_bytes * (parts.peer != rank[parts.of]), calls.num_rows)
    return np.where(total > 0, away / np.maximum(total, 1), np.nan)


def _world(files: pa.Table) -> int:
    sizes = set(files["world_size"].drop_null().to_pylist())
    return int(sizes.pop()) if len(sizes) == 1 else -1


def _groups(calls: pa.Table, members: pa.Table, world: int = -1) -> _Groups:
    """Ranks of each call's group, by what its own rank says of it."""
    said: dict[tuple[int, str], tuple[int, ...]] = {}
    for row in members.select(["rank", "group", "ranks"]).to_pylist():
        if row["ranks"]:
            said[row["rank"], row["group"]] = tuple(row["ranks"])
    distinct: dict[tuple[int, ...], int] = {}
    names, ranks = dictionary(calls["group"]), integers(calls["rank"])
    length = np.maximum(integers(calls["group_size"], -1), _lengths(calls["in_splits"]))
    pair, at = np.unique(np.stack((ranks, codes(calls["group"]), length)), axis=1, return_inverse=True)
    found = np.full(pair.shape[1], -1, np.int64)
    for i, (rank, name, size) in enumerate(pair.T.tolist()):
        who = said.get((rank, names[name])) if name >= 0 else None
        who = tuple(range(world)) if who is None and size == world > 0 else who
        if who is not None and rank in who:
            found[i] = distinct.setdefault(who, len(distinct))
    size_of = np.array([len(who) for who in distinct], np.int64)
    flat = np.array([rank for who in distinct for rank in who], np.int64)
    return _Groups(found[np.ravel(at)], np.cumsum(size_of) - size_of, size_of, flat)


def _lengths(texts: pa.ChunkedArray) -> Ints:
    """Sizes in each list; -1 where there is none or it is cut."""
    count = pc.add(pc.count_substring(texts.cast(pa.string()), ","), 1)
    return integers(pc.if_else(_whole(texts), count, None), -1)


def _whole(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether a list is there and complete; null becomes False."""
    return pc.match_substring_regex(texts.cast(pa.string()), r"^\[\d+(,\d+)*\]$").fill_null(False)


def _even(calls: pa.Table, match: Ints, groups: _Groups) -> Flags:
    """Calls without lists in which every rank seen sends what it receives, the same on all, in equal parts."""
    size, received = integers(calls["size_bytes"], -1), integers(calls["received_bytes"], -2)
    alone = flags(calls["in_splits"].is_null()) & flags(calls["out_splits"].is_null())
    count = groups.size[groups.of_row] if len(groups.of_row) else groups.of_row
    fits: Flags = alone & (size == received) & (size % np.maximum(count, 1) == 0)
    if not len(match):
        return fits
    of = runs(np.where(match >= 0, match, match.max() + 1 + np.arange(len(match))))
    agreed: Flags = np.logical_and.reduceat(fits[of.order], of.first)
    agreed &= np.maximum.reduceat(size[of.order], of.first) == np.minimum.reduceat(size[of.order], of.first)
    fits &= agreed[of.of_row]
    return fits


def _pieces(texts: pa.ChunkedArray, size: Ints, even: Flags, groups: _Groups) -> Pieces:
    """Bytes per rank of the group, of calls whose list is as long as their group, or that are even."""
    count = np.append(groups.size, -1)[groups.of_row]
    listed = np.flatnonzero((_lengths(texts) == count) & (size >= 0) & (count > 0))
    inner = pc.utf8_slice_codeunits(texts.cast(pa.string()).take(pa.array(listed)), 1, -1)
    parts = pc.list_flatten(pc.split_pattern(inner, ",")).cast(pa.int64())
    of = np.repeat(listed, count[listed])
    rows = np.asarray(parts, np.int64)
    total = np.bincount(of, rows, len(count)).astype(np.int64)
    exact = (total[of] > 0) & (size[of] % np.maximum(total[of], 1) == 0) | (size[of] == 0) & (total[of] == 0)
    part_bytes = rows * (size[of] // np.maximum(total[of], 1))
    level = np.flatnonzero(even & (count > 0))
    of = np.concatenate((of[exact], np.repeat(level, count[level])))
    share = np.repeat(size[level] // np.maximum(count[level], 1), count[level])
    place = np.concatenate((_counted(count[listed])[exact], _counted(count[level])))
    peer = groups.ranks[groups.first[groups.of_row[of]] + place] if len(of) else of
    return Pieces(of, peer, np.concatenate((part_bytes[exact], share)))


def _counted(lengths: Ints) -> Ints:
    """0, 1, ... for each length, one behind the other."""
    return np.asarray(np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths), np.int64)
