"""Who kept a job from going on, as flight recorder dumps show it: culprits, and who only waited.

A culprit never enqueued a collective that others wait in (`never_enqueued`), did not complete what its peers completed
(`stuck_completing`), called another operation than the rest (`mismatched`), or left no dump while all others point
nowhere (`no_dump`). Who itself waits for somebody is no culprit, however many wait for it: blame follows the waits to
their end; ranks that wait for each other in a circle are all named. Where all ranks entered the oldest unfinished call
(`entered`) no rank is at fault: the network, NCCL or a kernel before it is. The dumps say where ranks stood when they
were written, not whether the job hung: one taken from a healthy job shows calls in flight, too.

Method: last enqueued and completed sequence number per rank and group (`_standing`), a graph of waits, its sinks.
Source: torch/distributed/flight_recorder, and the field's rule that the last to enqueue is the cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._standing import Group, Key, Pending, groups_of, receives
from diagnose.schema import BOOL, INT32, INT64, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "rank of a process group that did not go on",
    ("group", LABEL, "process group name"),
    ("description", LABEL, "as recorded"),
    ("seq", INT64, "sequence number of the call in question"),
    ("op", LABEL, "its operation"),
    ("size_bytes", INT64, "its message size; null where unknown"),
    ("dtype", LABEL, "its element type"),
    ("ts_ns", INT64, "when the first rank enqueued it"),
    ("rank", INT32, "global rank"),
    ("role", LABEL, "never_enqueued | stuck_completing | mismatched | no_dump | entered | waited"),
    ("culprit", BOOL, "whether the wait ends here"),
    ("enqueued_seq", INT64, "last call this rank enqueued in the group; null where unknown"),
    ("completed_seq", INT64, "last call it was seen to complete"),
    ("peers_seq", INT64, "how far the others got: enqueued, or completed where this rank is stuck completing"),
    ("unfinished_count", INT64, "collectives it had enqueued and not finished, in all groups; 0: it was in none"),
    ("waiting_ranks", RANKS, "who waited for it"),
    ("first_error", TEXT, "first error that the logs give for this rank"),
)

_ERRORS = ("ERROR", "WARN")
_MAX_MISSING_RATIO = 0.25  # of the ranks: more missing dumps than that were not handed in, rather than not written


def hangs(
    calls: pa.Table,
    members: pa.Table,
    enqueued: pa.Table,
    log_events: pa.Table | None = None,
    oom_messages: pa.Table | None = None,
) -> pa.Table:
    """Culprits first, then those who waited, per group. Empty without flight recorder dumps."""
    recorded = calls.filter(pc.equal(calls["source"].cast(pa.string()), "flight_recorder"))
    if not recorded.num_rows:
        return SCHEMA.empty()
    groups = groups_of(recorded, members, enqueued)
    seen = {r for table in (recorded, enqueued) for r in table["rank"].to_pylist() if r is not None}
    rows = _mismatched(recorded, groups)
    blamed = {row["group"] for row in rows}
    rows += _culprits({k: g for k, g in groups.items() if k[0] not in blamed}, receives(recorded))
    if not any(row["culprit"] for row in rows):
        rows += _undecided(groups, seen)
    errors = _first_errors(log_events, oom_messages)
    order = sorted(rows, key=lambda r: (not r["culprit"], r["ts_ns"] or 0, r["group"], r["rank"]))
    for row in order:
        row["first_error"] = errors.get(row["rank"])
        own = sum(len(g.pending.get(row["rank"], ())) for g in groups.values())
        row["unfinished_count"] = own if row["rank"] in seen else None
    return SCHEMA.of_rows(order)


def _culprits(groups: dict[Key, Group], receiving: dict[int, set[int]]) -> list[dict[str, Any]]:
    """Rows of every group in which somebody is missing or stuck."""
    missing = {key: found for key, group in groups.items() if (found := group.missing())}
    stuck = {key: found for key, group in groups.items() if (found := group.stuck())}
    waits: dict[int, set[int]] = defaultdict(set)
    for found in (*missing.values(), *stuck.values()):
        for rank, waiting in found.items():
            for other in waiting:
                waits[other].add(rank)
    ends = {r for found in stuck.values() for r in found}
    late = {r for found in missing.values() for r in found}
    for rank in late - ends:
        waits[rank] |= receiving.get(rank, set()) - {rank}
    ends |= {r for r in late if not waits.get(r)}
    ends |= {r for r in late if not _reaches(r, ends, waits, receiving)}
    rows = []
    for key in dict.fromkeys((*missing, *stuck)):
        group, never, slow = groups[key], missing.get(key, {}), stuck.get(key, {})
        for rank in group.ranks:
            waiting = never.get(rank) or slow.get(rank) or []
            if rank in ends and (rank in never or rank in slow):
                role = "never_enqueued" if rank in never else "stuck_completing"
                rows.append(_row(group, rank, role, True, waiting))
            elif group.first(rank) is not None or rank in never:
                rows.append(_row(group, rank, "waited", False, []))
    return rows


def _reaches(rank: int, ends: set[int], waits: dict[int, set[int]], receiving: dict[int, set[int]]) -> bool:
    """Whether following the waits from `rank` leads to one of `ends`."""
    open_, seen = [rank], {rank}
    while open_:
        here = open_.pop()
        if here in ends:
            return True
        onward = (waits.get(here, set()) | receiving.get(here, set())) - seen
        seen |= onward
        open_ += onward
    return False


def _row(group: Group, rank: int, role: str, culprit: bool, waiting: list[int]) -> dict[str, Any]:
    call = _call_in_question(group, rank, role)
    others = [r for r in group.ranks if r != rank]
    reached = group.completed if role == "stuck_completing" else group.enqueued
    times = [p.ts_ns for r in group.ranks for p in group.pending.get(r, ()) if call and p.seq == call.seq and p.ts_ns]
    return {
        "group": group.name,
        "description": group.description,
        "seq": call.seq if call else None,
        "op": call.op if call else None,
        "size_bytes": call.size_bytes if call else None,
        "dtype": call.dtype if call else None,
        "ts_ns": min(times, default=None),
        "rank": rank,
        "role": role,
        "culprit": culprit,
        "enqueued_seq": group.enqueued.get(rank),
        "completed_seq": group.completed.get(rank),
        "peers_seq": max((reached[r] for r in others if r in reached), default=None),
        "waiting_ranks": sorted(waiting),
    }


def _call_in_question(group: Group, rank: int, role: str) -> Pending | None:
    """What the rank never enqueued, or its own first unfinished call."""
    if role != "never_enqueued":
        return group.first(rank)
    beyond = [p for r in group.ranks if (p := group.first(r)) is not None and p.seq > group.enqueued[rank]]
    return min(beyond, key=lambda p: p.seq)


def _undecided(groups: dict[Key, Group], seen: set[int]) -> list[dict[str, Any]]:
    """No culprit among the dumps: ranks without one, else the oldest call that all had entered."""
    unfinished = [g for g in groups.values() if any(g.pending.values())]
    if not unfinished:
        return []
    oldest = min(unfinished, key=lambda g: min(p.ts_ns or 0 for ps in g.pending.values() for p in ps[:1]))
    known = {r for g in groups.values() for r in g.ranks}
    absent = known - seen
    waiting = [r for r in oldest.ranks if oldest.first(r) is not None]
    if absent and len(absent) <= max(1, _MAX_MISSING_RATIO * len(known)):
        concerned = [g for g in unfinished if absent & set(g.ranks)]
        if concerned:
            oldest = min(concerned, key=lambda g: min(p.ts_ns or 0 for ps in g.pending.values() for p in ps[:1]))
            waiting = [r for r in oldest.ranks if oldest.first(r) is not None]
            call = oldest.first(waiting[0])
            what = {"seq": call.seq, "op": call.op, "ts_ns": call.ts_ns} if call else {}
            gone = [_row(oldest, r, "no_dump", True, waiting) | what for r in oldest.ranks if r in absent]
            return gone + [_row(oldest, r, "waited", False, []) for r in waiting]
    if absent & set(oldest.ranks):
        return []
    firsts = {p.seq for r in oldest.ranks if (p := oldest.first(r)) is not None}
    entered = len(firsts) == 1 and len(waiting) == len(oldest.ranks)
    return [_row(oldest, r, "entered", False, []) for r in waiting] if entered else []


def _mismatched(recorded: pa.Table, groups: dict[Key, Group]) -> list[dict[str, Any]]:
    """Ranks that called something else than the rest at the first sequence number where the calls of a group differ."""
    calls = recorded.filter(pc.is_valid(recorded["seq"])).select(
        ["rank", "group", "seq", "op", "in_count", "size_bytes", "dtype", "ts_ns"]
    )
    names = pa.table({**{c: calls[c] for c in calls.column_names}, "op": calls["op"].cast(pa.string())})
    spread = names.group_by(["group", "seq"]).aggregate([("op", "count_distinct"), ("rank", "count_distinct")])
    odd = spread.filter(
        pc.and_(pc.greater(spread["op_count_distinct"], 1), pc.greater(spread["rank_count_distinct"], 1))
    )
    rows = []
    for name in sorted({str(g) for g in odd["group"].to_pylist() if g is not None}):
        own = [g for (n, _), g in groups.items() if n == name]
        for group in own:
            seqs = sorted(odd.filter(pc.equal(odd["group"].cast(pa.string()), name))["seq"].to_pylist())
            rows += next((found for seq in seqs if (found := _differing(names, group, seq))), [])
    return rows


def _differing(calls: pa.Table, group: Group, seq: int) -> list[dict[str, Any]]:
    here = calls.filter(pc.and_(pc.equal(calls["group"].cast(pa.string()), group.name), pc.equal(calls["seq"], seq)))
    by_rank: dict[int, dict[str, Any]] = {}
    operations: dict[int, set[str]] = defaultdict(set)
    for row in here.to_pylist():
        if row["rank"] in group.ranks:
            by_rank[row["rank"]] = row
            operations[row["rank"]].add(row["op"])
    said = Counter(tuple(sorted(ops)) for ops in operations.values())
    if len(said) < 2 or any(_oldest(calls, group.name, rank) == seq for rank in operations):
        return []  # alike, or the ring buffer may have lost part of a coalesced call
    (usual, most), *rest = said.most_common()
    tied = rest[0][1] == most
    rows = []
    for rank, ops in operations.items():
        guilty = tied or tuple(sorted(ops)) != usual
        others = [r for r in operations if operations[r] != ops]
        row = _row(group, rank, "mismatched" if guilty else "waited", guilty, others if guilty and not tied else [])
        call = by_rank[rank]
        row |= {k: call[k] for k in ("seq", "op", "size_bytes", "dtype", "ts_ns")}
        rows.append(row)
    return rows


def _oldest(calls: pa.Table, name: str, rank: int) -> int | None:
    own = calls.filter(pc.and_(pc.equal(calls["group"].cast(pa.string()), name), pc.equal(calls["rank"], rank)))
    seqs = set(own["seq"].to_pylist())
    return min(seqs) if len(seqs) > 1 else None


def _first_errors(log_events: pa.Table | None, oom_messages: pa.Table | None) -> dict[int, str]:
    """First error per rank that logs give, watchdog time-outs apart: those are the waiting."""
    found: dict[int, tuple[int, str]] = {}

    def add(rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            if row["rank"] is not None and (row["rank"] not in found or row["line"] < found[row["rank"]][0]):
                found[row["rank"]] = row["line"] or 0, row["detail"]

    if log_events is not None:
        kept = log_events.select(["rank", "line", "level", "kind", "detail"]).to_pylist()
        add(r for r in kept if r["level"] in _ERRORS and not str(r["kind"]).startswith("watchdog"))
    if oom_messages is not None:
        add({**r, "detail": "out of memory"} for r in oom_messages.select(["rank", "line"]).to_pylist())
    return {rank: text for rank, (_, text) in found.items()}
