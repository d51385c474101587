"""The last counters of each device's allocator as moments: at the end, and the peak, which is no one moment's state.

Blocks that are free inside segments with a live block are `inactive_split`; what is reserved, neither active nor so,
lies in wholly free segments. Source: c10/cuda/CUDACachingAllocator.cpp (statistics).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Row = dict[str, Any]
SOURCE = "statistics"


def latest(allocator_stats: pa.Table | None) -> list[Row]:
    """The last print of each rank and device."""
    rows = [] if allocator_stats is None else allocator_stats.to_pylist()
    return list({(row["rank"], row["device"]): row for row in sorted(rows, key=lambda row: row["print"])}.values())


def moments_of_counters(allocator_stats: pa.Table | None, known: list[Row]) -> list[Row]:
    """Moments of the devices of which no recording tells more."""
    recorded = {(row["rank"], row["device"]) for row in known}
    found: list[Row] = []
    for row in latest(allocator_stats):
        if (row["rank"], row["device"]) not in recorded:
            found += [_end(row), _peak(row)]
    return [row for row in found if row["allocated_bytes"] is not None]


def _base(row: Row, moment: str) -> Row:
    return {"rank": row["rank"], "device": row["device"], "moment": moment, "source": SOURCE, "index": None,
            "whole": True, "allocator": "pytorch", "count": 1}  # fmt: skip


def _end(row: Row) -> Row:
    active = row["allocated_bytes"] if row["active_bytes"] is None else row["active_bytes"]
    found = _base(row, "end") | {"allocated_bytes": active, "reserved_bytes": row["reserved_bytes"]}
    split = row["inactive_split_bytes"]
    if None not in (active, row["reserved_bytes"], split):
        found |= {"stranded_bytes": split, "cached_bytes": max(0, row["reserved_bytes"] - active - split)}
    if None not in (row["allocated_bytes"], row["requested_bytes"]):
        found["internal_bytes"] = max(0, row["allocated_bytes"] - row["requested_bytes"])
    if None not in (row["allocated_bytes"], row["active_bytes"]):
        found["pending_bytes"] = max(0, row["active_bytes"] - row["allocated_bytes"])
    return found


def _peak(row: Row) -> Row:
    return _base(row, "peak") | {"allocated_bytes": row["peak_allocated_bytes"]}
