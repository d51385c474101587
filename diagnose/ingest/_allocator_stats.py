"""Counters of the caching allocator under one set of names, and the rows they make.

Source: `torch.cuda.memory_stats`, https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_stats.html
"""

from __future__ import annotations

from typing import Any

from diagnose.schema import INGESTED, Tables

COUNTERS = {
    "allocated_bytes": "allocated_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "active_bytes": "active_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "inactive_split_bytes": "inactive_split_bytes.all.current",
    "requested_bytes": "requested_bytes.all.current",
    "retries_count": "num_alloc_retries",
    "ooms_count": "num_ooms",
}
"""Column of `allocator_stats` -> key of the flat dictionary."""


def tables_of(rows: list[dict[str, Any]]) -> Tables:
    """`allocator_stats` of rows given as dicts, in order of printing; retries also as `log_events`."""
    prints: dict[tuple[Any, Any], int] = {}
    for row in rows:
        key = row.get("rank"), row.get("device")
        row["print"] = prints.get(key, 0)
        prints[key] = row["print"] + 1
    last = {(row.get("rank"), row.get("device")): row for row in rows}  # counters only grow
    events = [
        {
            "kind": "allocator_retries",
            "level": "WARNING",
            "rank": rank,
            "count": row["retries_count"],
            "detail": f"cudaMalloc failed and was retried {row['retries_count']:,} times since the process began",
        }
        for (rank, _), row in last.items()
        if row.get("retries_count")
    ]
    found = {"allocator_stats": rows, "log_events": events}
    return {name: INGESTED[name].of_rows(each) for name, each in found.items() if each}
