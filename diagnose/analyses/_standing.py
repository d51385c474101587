"""Where every rank stood in every process group when its flight recorder was dumped, and who waited for whom.

Point-to-point calls count on each rank by themselves, so groups that carry them are compared by their collectives.
A rank *waits for* another where its first unfinished collective was never enqueued by the other, where the other
stopped completing calls that this rank completed, or where it receives from it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

P2P = ("send", "recv", "p2p")
SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can complete before all have entered: one that completed elsewhere can complete here."""

Key = tuple[str, tuple[int, ...]]


class Pending(NamedTuple):
    """A call that was enqueued and not seen to complete."""

    seq: int
    op: str
    size_bytes: int | None
    dtype: str | None
    ts_ns: int | None


class Group:
    """A process group and how far its ranks got in it."""

    def __init__(self, name: str, ranks: tuple[int, ...], description: str | None) -> None:
        self.name, self.ranks, self.description = name, ranks, description
        self.enqueued: dict[int, int] = {}
        self.completed: dict[int, int] = {}
        self.pending: dict[int, list[Pending]] = defaultdict(list)

    def first(self, rank: int) -> Pending | None:
        """The rank's first unfinished collective."""
        return self.pending[rank][0] if self.pending.get(rank) else None

    def missing(self) -> dict[int, list[int]]:
        """Ranks that never enqueued what others wait in, with those others."""
        found = {}
        for rank, last in self.enqueued.items():
            waiting = [r for r in self.ranks if r != rank and (p := self.first(r)) is not None and p.seq > last]
            if waiting:
                found[rank] = waiting
        return found

    def stuck(self) -> dict[int, list[int]]:
        """Ranks that do not complete what others completed, with those others that are now unfinished."""
        most = max(self.completed.values(), default=0)
        found: dict[int, list[int]] = {}
        for rank, last in self.completed.items():
            first = self.first(rank)
            if first is not None and last < most and first.seq <= most and first.op in SYMMETRIC:
                found[rank] = []
        for waiting in found.values():
            waiting += [r for r in self.ranks if r not in found and self.first(r) is not None]
        return found


def groups_of(calls: pa.Table, members: pa.Table, enqueued: pa.Table) -> dict[Key, Group]:
    """Groups that flight recorders describe. Without ranks only the default group can be told apart from others."""
    collectives = calls.filter(pc.is_valid(calls["seq"]))
    keys = _keys(calls, members)
    groups: dict[Key, Group] = {}
    for (_, name), (ranks, description) in keys.items():
        groups.setdefault((name, ranks), Group(name, ranks, description))

    def group(rank: int | None, name: str | None) -> Group | None:
        found = keys.get((rank, name))  # type: ignore[arg-type]
        return groups[name, found[0]] if found and name is not None else None

    mixed = {k for k in _pairs(calls.filter(pc.is_in(_text(calls["op"]), pa.array(P2P)))) if group(*k)}
    tainted = {(name, keys[rank, name][0]) for rank, name in mixed}
    for row in _last(collectives).to_pylist():
        found = group(row["rank"], row["group"])
        if found is not None:
            into = found.enqueued if row["state"] is None else found.completed
            into[row["rank"]] = max(into.get(row["rank"], 0), row["seq_max"])
    for row in enqueued.select(["rank", "group", "enqueued_seq", "completed_seq"]).to_pylist():
        found = group(row["rank"], row["group"])
        if found is not None and (found.name, found.ranks) not in tainted:
            for into, seq in ((found.enqueued, row["enqueued_seq"]), (found.completed, row["completed_seq"])):
                if seq is not None and not (into is found.enqueued and row["rank"] in into):
                    into[row["rank"]] = max(into.get(row["rank"], 0), seq)
    for row in _unfinished(collectives).to_pylist():
        found = group(row["rank"], row["group"])
        if found is not None:
            found.pending[row["rank"]].append(
                Pending(row["seq"], row["op"], row["size_bytes"], row["dtype"], row["ts_ns"])
            )
    return groups


def receives(calls: pa.Table) -> dict[int, set[int]]:
    """Rank -> ranks that it has unfinished receives from."""
    waits: dict[int, set[int]] = defaultdict(set)
    open_ = calls.filter(pc.and_(_open(calls), pc.equal(_text(calls["op"]), "recv")))
    for row in open_.select(["rank", "peer"]).to_pylist():
        if row["rank"] is not None and row["peer"] is not None:
            waits[row["rank"]].add(row["peer"])
    return waits


def _keys(calls: pa.Table, members: pa.Table) -> dict[tuple[int, str], tuple[tuple[int, ...], str | None]]:
    """(rank, group name) -> (ranks, description)."""
    keys: dict[tuple[int, str], tuple[tuple[int, ...], str | None]] = {}
    for row in members.select(["rank", "group", "ranks", "description"]).to_pylist():
        if row["ranks"]:
            keys[row["rank"], row["group"]] = tuple(row["ranks"]), row["description"]
    users = [(rank, name) for rank, name in _pairs(calls) if (rank, name) not in keys and name == "0"]
    everybody = tuple(sorted({rank for rank, _ in users}))
    return keys | dict.fromkeys(users, (everybody, None))


def _pairs(calls: pa.Table) -> list[tuple[int, str]]:
    rows = calls.select(["rank", "group"]).group_by(["rank", "group"]).aggregate([]).to_pylist()
    return [(row["rank"], str(row["group"])) for row in rows if row["rank"] is not None and row["group"] is not None]


def _last(collectives: pa.Table) -> pa.Table:
    """Last sequence number per rank and group: of all (state null) and of the completed ones."""
    state = _text(collectives["state"])
    done = collectives.filter(pc.equal(state, "completed").combine_chunks().fill_null(False))
    parts = [
        table.select(["rank", "group", "seq"])
        .group_by(["rank", "group"])
        .aggregate([("seq", "max")])
        .select(["rank", "group", "seq_max"])
        .append_column("state", pa.array([name] * n, pa.string()))
        for table, name in ((collectives, None), (done, "completed"))
        for n in [table.select(["rank", "group"]).group_by(["rank", "group"]).aggregate([]).num_rows]
    ]
    return pa.concat_tables(parts).unify_dictionaries()


def _unfinished(collectives: pa.Table) -> pa.Table:
    columns = ["rank", "group", "seq", "op", "size_bytes", "dtype", "ts_ns"]
    return collectives.filter(_open(collectives)).select(columns).sort_by([("rank", "ascending"), ("seq", "ascending")])


def _open(calls: pa.Table) -> pa.ChunkedArray:
    """Known to be unfinished; a null state (gloo) is unknown."""
    return pc.fill_null(pc.not_equal(_text(calls["state"]), "completed"), False)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())
