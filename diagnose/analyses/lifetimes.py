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
from diagnose.analyses._columns import NO_RANK, Flags, Ints, flags, integers, label
from diagnose.analyses._memory_context import Context, of_snapshot, of_trace
from diagnose.analyses._memory_roles import PARTS, roles
from diagnose.schema import BOOL, FLOAT, INGESTED, INT32, INT64, LABEL, TEXT, UINT64, table

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

    @property
    def known_rank(self) -> int | None:
        """The rank as tables hold it; None where no row names one."""
        return None if self.rank == NO_RANK else self.rank


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
    held = _owners(INGESTED["blocks"].empty() if blocks is None else blocks)
    made = _owners(allocations)
    traced = flags(pc.is_valid(allocations["event_id"]))
    found = {(r, d, "trace" if t else "snapshot") for r, d, t in _distinct(*made, traced)}
    found |= {(r, d, "snapshot") for r, d in _distinct(*held)}
    accelerated = {r for r, d, s in found if s == "trace" and d >= 0}
    for rank, device, source in sorted(found):
        if source == "trace" and device < 0 and rank in accelerated:
            continue
        mine = (made[0] == rank) & (made[1] == device) & (traced == (source == "trace"))
        events = _rows(allocations, mine, by_time=source == "trace")
        own = (held[0] == rank) & (held[1] == device) & (source == "snapshot")
        yield Group(rank, device, source, events, INGESTED["blocks"].empty() if blocks is None else _rows(blocks, own))


def _owners(rows: pa.Table) -> tuple[Ints, Ints]:
    """Rank and device of each row; `NO_RANK` and -1 where unknown."""
    return integers(rows["rank"], NO_RANK), integers(rows["device"], -1)


def _distinct(*columns: np.ndarray) -> list[tuple[int, ...]]:
    names = [str(i) for i in range(len(columns))]
    distinct = pa.table(list(columns), names).group_by(names).aggregate([])
    return list(zip(*(distinct[name].to_pylist() for name in names), strict=True))


def _rows(table: pa.Table, chosen: Flags, by_time: bool = False) -> pa.Table:
    """The chosen rows, copied only where some are left out or not in order."""
    mine = table if chosen.all() else table.filter(pa.array(chosen))
    if by_time:
        ts_ns = integers(mine["ts_ns"])
        if (np.diff(ts_ns) < 0).any():
            mine = mine.take(pa.array(np.argsort(ts_ns, kind="stable")))
    return mine


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
    rank = group.known_rank
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
