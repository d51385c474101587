"""The state of a device's memory at the moments that matter: at the failure, at the peak, at the end.

A failure is an oom event of a snapshot or trace, or an out-of-memory message; a message about the same request joins
the event and adds what no snapshot knows (the device's size, other processes). The state is that of the moment, not of
the end of the file. Sizes of a message have two decimals, so its figures are rounded to about a hundredth.
`stranded` is free memory in segments that hold a live block, `cached` wholly free segments; in a message both are
"reserved but unallocated", which at a failure is stranded (the allocator has given back every free segment before).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._allocator_counters import moments_of_counters
from diagnose.analyses._columns import flags, integers
from diagnose.analyses._layout import Layout, at_end, at_state, expandable_any
from diagnose.analyses._memory_messages import complete, devices_of, join, rows_of_messages
from diagnose.analyses._memory_settings import conflicts, expandable_setting
from diagnose.analyses.lifetimes import Group, groups
from diagnose.analyses.memory import allocated_totals, mine, own_rows, reserved_totals
from diagnose.schema import BOOL, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "moment of one device's memory",
    ("rank", INT32, "global rank"),
    ("device", INT32, "device index"),
    ("moment", LABEL, "oom | peak | end"),
    ("failure", INT32, "number of the failure within rank and device, from 0; 0 at other moments"),
    ("source", TEXT, "snapshot | trace | statistics | message | series, joined by commas"),
    ("index", INT64, "state of the recording; null where it comes from a message"),
    ("ts_ns", INT64, "when"),
    ("tried_bytes", INT64, "what was asked for at a failure"),
    ("capacity_bytes", INT64, "memory of the device"),
    ("device_free_bytes", INT64, "free on the device"),
    ("used_bytes", INT64, "in use on the device by anybody"),
    ("whole", BOOL, "allocated covers all that is alive; false: only what was made since the recording began"),
    ("allocated_bytes", INT64, "live allocations of PyTorch, those awaiting their free included"),
    ("reserved_bytes", INT64, "reserved by PyTorch"),
    ("unallocated_bytes", INT64, "reserved but not allocated"),
    ("stranded_bytes", INT64, "of it in segments that hold a live block"),
    ("cached_bytes", INT64, "of it in wholly free segments"),
    ("private_free_bytes", INT64, "of it in private pools: of no use to the default pool"),
    ("largest_hole_bytes", INT64, "largest free range the default pool could use; null where not recorded"),
    ("recoverable_bytes", INT64, "free on the device and reserved but unallocated: the most any allocator could find"),
    ("pending_bytes", INT64, "freed but awaiting another stream"),
    ("internal_bytes", INT64, "lost to rounding up sizes; null where not recorded"),
    ("process_bytes", INT64, "in use by this process, PyTorch or not"),
    ("non_torch_bytes", INT64, "of this process outside PyTorch's allocator: context, NCCL, libraries"),
    ("other_bytes", INT64, "in use by other processes"),
    ("other_process", INT64, "pid of the largest of them"),
    ("other_largest_bytes", INT64, "what that one uses"),
    ("unaccounted_bytes", INT64, "in use on the device by nobody named"),
    ("limit_bytes", INT64, "what this process may use, where a limit is set"),
    ("expandable", BOOL, "expandable segments are on; null where nothing tells"),
    ("conflict", TEXT, "what in this job does not go together with expandable segments; null where nothing was seen"),
    ("allocator", LABEL, "who failed or is shown: pytorch | cudaMallocAsync | nccl | cuda | cublas"),
    ("count", INT64, "ranks or prints that said the same"),
)


def memory_moments(  # noqa: PLR0913, PLR0917  a parameter is a table
    files: pa.Table,
    lifetimes: pa.Table | None = None,
    allocations: pa.Table | None = None,
    blocks: pa.Table | None = None,
    segments: pa.Table | None = None,
    oom_messages: pa.Table | None = None,
    series: pa.Table | None = None,
    settings: pa.Table | None = None,
    stacks: pa.Table | None = None,
    allocator_stats: pa.Table | None = None,
) -> pa.Table:
    """Rows of all ranks and devices."""
    devices = devices_of(files)
    rows: list[dict[str, Any]] = []
    if allocations is not None and lifetimes is not None:
        for group in groups(allocations, blocks):
            rows += _of_group(group, mine(lifetimes, group), segments)
    rows += moments_of_counters(allocator_stats, rows)
    for row in rows:
        row["capacity_bytes"] = devices.get(row["rank"])
    rows = join(rows, rows_of_messages(oom_messages, series))
    _number(rows)
    switch, conflict = expandable_setting(settings), conflicts(settings, stacks)
    for row in rows:
        complete(row, switch)
        row["conflict"] = conflict
    return SCHEMA.of_rows(rows)


def _of_group(group: Group, lives: pa.Table, segments: pa.Table | None) -> list[dict[str, Any]]:
    n = group.events.num_rows
    if not lives.num_rows and not n:
        return []
    allocated = allocated_totals(lives, n)
    own = segments.filter(pa.array(own_rows(segments, group))) if segments is not None else None
    reserved = reserved_totals(group, segments, allocated)
    action = group.events["action"].cast(pa.string())
    moves = flags(pc.is_in(action, pa.array(["alloc", "free", "free_completed"])))
    ooms = np.flatnonzero(flags(pc.equal(action, "oom")))
    states = [("oom", int(i)) for i in ooms[-1:]]  # earlier ones were survived
    states += [("peak", int(np.argmax(allocated)) - 1)] if moves.any() else []
    states.append(("end", n - 1))
    found = []
    for moment, state in states:
        row = _row(group, moment, state)
        row["allocated_bytes"] = int(allocated[state + 1])
        row["reserved_bytes"] = None if reserved is None else int(reserved[state + 1])
        if own is not None and own.num_rows and group.source == "snapshot":
            row |= _spaces(layout_in(state, group, lives, own))
            row["expandable"] = expandable_any(own)
        if moment == "end" and group.blocks.num_rows:
            row |= _inside(group.blocks)
        found.append(row)
    return found


def _row(group: Group, moment: str, state: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rank": group.known_rank,
        "device": group.device,
        "moment": moment,
        "source": group.source,
        "index": state,
        "whole": group.source == "snapshot" or _has_totals(group),
        "allocator": "pytorch",
        "count": 1,
    }
    if state >= 0:
        row["ts_ns"] = group.events["ts_ns"][state].as_py()
    if moment == "oom":
        row["tried_bytes"] = group.events["size_bytes"][state].as_py()
        row["device_free_bytes"] = group.events["device_free_bytes"][state].as_py()
    return row


def _has_totals(group: Group) -> bool:
    """Whether a trace says what was allocated before it began: accelerators' allocators do, host memory does not."""
    totals = group.events["allocated_bytes"]
    return group.device >= 0 and totals.null_count < len(totals)


def layout_in(state: int, group: Group, lives: pa.Table, segments: pa.Table) -> Layout:
    """Layout in a state; the recorded one where nothing moved after it."""
    action = group.events["action"].cast(pa.string())
    changed = flags(pc.starts_with(action, "segment"))
    changed |= flags(pc.is_in(action, pa.array(["alloc", "free", "free_completed"])))
    if group.blocks.num_rows and not changed[state + 1 :].any():
        return at_end(segments, group.blocks)
    alive = (integers(lives["start_index"]) <= state) & (integers(lives["end_index"]) > state)
    there = lives.filter(pa.array(alive))
    return at_state(
        state,
        group.events,
        segments,
        np.asarray(there["address"].fill_null(0), dtype=np.uint64),
        integers(there["size_bytes"]),
    )


def _spaces(layout: Layout) -> dict[str, Any]:
    free, _, _ = layout.per_segment()
    return {
        "reserved_bytes": int(layout.size.sum()),
        "stranded_bytes": layout.stranded_bytes,
        "cached_bytes": layout.cached_bytes,
        "private_free_bytes": int(free[layout.private].sum()),
        "largest_hole_bytes": layout.largest_hole_bytes,
    }


def _inside(blocks: pa.Table) -> dict[str, Any]:
    """Bytes awaiting a stream and lost to rounding; known only for recorded blocks."""
    state = blocks["state"].cast(pa.string())
    pending = flags(pc.equal(state, "active_pending_free"))
    active = flags(pc.starts_with(state, "active"))
    size, asked = integers(blocks["size_bytes"]), integers(blocks["requested_bytes"], -1)
    known = active & (asked >= 0)
    return {
        "pending_bytes": int(size[pending].sum()),
        "internal_bytes": int((size - asked)[known].sum()) if known.any() else None,
    }


def _number(rows: list[dict[str, Any]]) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = row["rank"], row.get("device"), row["moment"]
        row["failure"] = seen.get(key, 0)
        seen[key] = row["failure"] + 1
