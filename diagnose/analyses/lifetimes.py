"""Every allocation with the time it lived and the part of training it served: what all memory figures are sums of.

A part is a judgement with a confidence and its evidence: the call stack (snapshots) or the phase and operator of the
host (traces), corrected by life time. Memory allocated in backward is a gradient if it outlives backward, else a
temporary and counted with the activations. What nothing tells stays `unknown`; it is not spread over the others.
Numbers `start_index` and `end_index` are states of `_replay`: alive in start_index .. end_index - 1.
Method: `_replay` per rank and device; one look at each distinct stack; the rest whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _replay
from diagnose.analyses._columns import Flags, Ints, flags, integers, label
from diagnose.analyses._memory_context import Context, of_snapshot, of_trace
from diagnose.analyses._memory_roles import PARTS, roles
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, TEXT, UINT64, table

SCHEMA = table(
    "allocation and its life",
    ("rank", INT32, "global rank"),
    ("device", INT32, "device index; -1 for host memory"),
    ("source", LABEL, "snapshot | trace"),
    ("address", UINT64, "where it was; null for what a trace cannot see"),
    ("size_bytes", INT64, "rounded size"),
    ("start_index", INT64, "first state it is alive in; -1: before the recording"),
    ("end_index", INT64, "first state it is not alive in"),
    ("start_ns", INT64, "when it was made; null where it is older or times were not recorded"),
    ("end_ns", INT64, "when it was freed; null where it was not, or times were not recorded"),
    ("alive", BOOL, "alive at the end of the recording"),
    ("stack", INT64, "key of stacks"),
    ("place", TEXT, "innermost user line of its stack, or module and operator in traces"),
    ("loss", BOOL, "made by the loss or the output layer"),
    ("part", LABEL, "parameters | gradients | optimizer | activations | comm_buffers | unknown"),
    ("confidence_ratio", FLOAT, "of the part; null where unknown"),
    ("evidence", LABEL, "what the part rests on"),
)


class Group(NamedTuple):
    """Allocator events and end blocks of one rank, device and source."""

    rank: int
    device: int
    source: str
    events: pa.Table
    blocks: pa.Table


def lifetimes(
    allocations: pa.Table,
    blocks: pa.Table | None = None,
    stacks: pa.Table | None = None,
    marks: pa.Table | None = None,
    events: pa.Table | None = None,
    op_args: pa.Table | None = None,
) -> pa.Table:
    """Lives of all allocations of all ranks."""
    parts = []
    for group in groups(allocations, blocks):
        if group.source == "snapshot":
            context = of_snapshot(group.rank, group.device, group.events, group.blocks, stacks, marks)
        else:
            context = of_trace(group.rank, group.events, events, op_args)
        parts.append(_of_group(group, context))
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty()


def groups(allocations: pa.Table, blocks: pa.Table | None) -> Iterator[Group]:
    """Events in order per rank, device and source. In traces of accelerators host memory is left out."""
    empty = blocks.slice(0, 0) if blocks is not None else None
    keys = {(r, d, "snapshot") for r, d in _keys(blocks)} if blocks is not None else set()
    from_trace = pc.is_valid(allocations["event_id"])
    for source in ("snapshot", "trace"):
        chosen = allocations.filter(from_trace if source == "trace" else pc.invert(from_trace))
        keys |= {(r, d, source) for r, d in _keys(chosen)}
    accelerated = {r for r, d, s in keys if s == "trace" and d >= 0}
    for rank, device, source in sorted(keys):
        if source == "trace" and device < 0 and rank in accelerated:
            continue
        mine = _of(allocations, rank, device)
        valid = pc.is_valid(mine["event_id"])
        mine = mine.filter(valid if source == "trace" else pc.invert(valid))
        if source == "trace":
            mine = mine.take(pa.array(np.argsort(integers(mine["ts_ns"]), kind="stable")))
        own = _of(blocks, rank, device) if blocks is not None and source == "snapshot" else empty
        yield Group(rank, device, source, mine, own if own is not None else _no_blocks())


def _no_blocks() -> pa.Table:
    from diagnose.schema import INGESTED

    return INGESTED["blocks"].empty()


def _keys(rows: pa.Table) -> set[tuple[int, int]]:
    distinct = rows.select(["rank", "device"]).group_by(["rank", "device"]).aggregate([]).to_pylist()
    return {(-(1 << 30) if r["rank"] is None else r["rank"], -1 if r["device"] is None else r["device"])
            for r in distinct}  # fmt: skip


def _of(rows: pa.Table, rank: int, device: int) -> pa.Table:
    ranks, devices = integers(rows["rank"], -(1 << 30)), integers(rows["device"], -1)
    return rows.filter(pa.array((ranks == rank) & (devices == device)))


def _of_group(group: Group, context: Context) -> pa.Table:
    events, n = group.events, group.events.num_rows
    action = events["action"].cast(pa.string())
    made = flags(pc.equal(action, "alloc"))
    freed = flags(pc.is_in(action, pa.array(["free", "free_completed"])))
    active = flags(pc.starts_with(group.blocks["state"].cast(pa.string()), "active"))
    size = integers(events["size_bytes"])
    at = np.asarray(group.blocks["address"].fill_null(0), dtype=np.uint64)[active]
    found = _replay.lives(
        made,
        freed,
        np.asarray(events["address"].fill_null(0), dtype=np.uint64),
        _replay.rounded(size) if group.source == "snapshot" else size,  # traces have the block's size
        at,
        integers(group.blocks["size_bytes"])[active],
        ended=group.source == "snapshot" and group.blocks.num_rows > 0,
    )
    kind, confidence, place, loss, stack = context.of_lives(found, np.flatnonzero(active))
    unseen = _unseen_bytes(group, found, made, freed)
    if unseen:
        found = _append(found, unseen, n)
        kind, confidence, place, loss, stack = (
            np.append(a, b)
            for a, b in zip((kind, confidence, place, loss, stack), (0, 0.0, -1, False, -1), strict=True)
        )
    role = roles(found, kind, confidence, context.optimizer_starts, n, traced=group.source == "trace")
    return _table(group, found, role, (place, loss, stack), context, bool(unseen))


def _unseen_bytes(group: Group, found: _replay.Lives, made: Flags, freed: Flags) -> int:
    """What a trace's allocator held before the recording and never freed in it; 0 in snapshots, which hold all."""
    if group.source == "snapshot" or not (made | freed).any() or group.device < 0:
        return 0
    first = int(np.flatnonzero(made | freed)[0])
    total: int | None = group.events["allocated_bytes"][first].as_py()
    if total is None:
        return 0
    size: int = group.events["size_bytes"][first].as_py() or 0
    before = total - size if made[first] else total + size
    return max(0, before - int(found.size[found.start < 0].sum()))


def _append(found: _replay.Lives, size_bytes: int, n: int) -> _replay.Lives:
    more = (np.uint64(0), size_bytes, -1, n, -1, -1)
    return _replay.Lives(*(np.append(a, np.array([b], a.dtype)) for a, b in zip(found, more, strict=True)))


def _table(group: Group, found: _replay.Lives, role: tuple[Ints, np.ndarray, list[str], Ints],
           said: tuple[Ints, Flags, Ints], context: Context, unseen: bool) -> pa.Table:  # fmt: skip
    part, confidence, reasons, reason = role
    place, loss, stack = said
    n, count = group.events.num_rows, len(found.size)
    times = np.append(integers(group.events["ts_ns"], -1), -1)
    start_ns = np.where(found.event >= 0, times[found.event], -1)
    end_ns = np.where(found.end < n, times[np.minimum(found.end, n)], -1)
    hidden = np.zeros(count, dtype=bool)
    hidden[count - 1 :] = unseen
    rank = None if group.rank == -(1 << 30) else group.rank
    return SCHEMA.build(
        {
            "rank": pa.array([rank], pa.int32()).take(pa.array(np.zeros(count, np.int64))),
            "device": np.full(count, group.device, np.int32),
            "source": label([group.source], np.zeros(count, np.int64)),
            "address": np.ma.array(found.address, mask=hidden),
            "size_bytes": found.size,
            "start_index": found.start,
            "end_index": found.end,
            "start_ns": np.ma.array(start_ns, mask=start_ns < 0),
            "end_ns": np.ma.array(end_ns, mask=end_ns < 0),
            "alive": found.end >= n,
            "stack": np.ma.array(stack, mask=stack < 0),
            "place": label(context.places, place).cast(pa.string()),
            "loss": loss,
            "part": label(list(PARTS), part),
            "confidence_ratio": np.ma.array(confidence, mask=confidence <= 0),
            "evidence": label(reasons, reason),
        }
    )
