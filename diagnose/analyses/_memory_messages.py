"""Out-of-memory messages as moments, and how they join the failures that snapshots and traces recorded.

A message and an oom event are one failure when they ask for the same size (a message has two decimals) and nothing
says that they are of different ranks. A message of somebody outside PyTorch's allocator (NCCL, a library) knows only
its own request: the last figures of the same rank's log stand for the state then.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.analyses._memory_series import tracks

Row = dict[str, Any]
SAME_REQUEST_RATIO = 0.01
"""Two decimals of a unit are at worst half a percent of a figure above 1."""
_COPIED = (
    "tried_bytes", "capacity_bytes", "process_bytes", "other_bytes", "other_process", "other_largest_bytes",
    "allocated_bytes", "reserved_bytes", "limit_bytes", "allocator", "count",
)  # fmt: skip


def devices_of(files: pa.Table) -> dict[int | None, int]:
    """Memory of the device of each rank, where its files agree on it."""
    sizes: dict[int | None, set[int]] = {}
    for rank, size in zip(files["rank"].to_pylist(), files["gpu_memory_bytes"].to_pylist(), strict=True):
        if size:
            sizes.setdefault(rank, set()).add(size)
    return {rank: found.pop() for rank, found in sizes.items() if len(found) == 1}


def rows_of_messages(oom_messages: pa.Table | None, series: pa.Table | None) -> list[Row]:
    """One moment per message."""
    if oom_messages is None or not oom_messages.num_rows:
        return []
    latest = _latest(series)
    rows = []
    for said in oom_messages.to_pylist():
        row: Row = {"rank": said["rank"], "device": said["device"], "moment": "oom", "source": "message", "whole": True}
        row |= {name: said[name] for name in _COPIED if said[name] is not None}
        row["device_free_bytes"] = said["free_bytes"]
        if said["unallocated_bytes"] is not None and said["reserved_bytes"] is None and said["allocated_bytes"]:
            row["reserved_bytes"] = said["allocated_bytes"] + said["unallocated_bytes"]
        if said["wording"] in ("current", "old") and row.get("reserved_bytes") is not None:
            row["stranded_bytes"] = row["reserved_bytes"] - row["allocated_bytes"]
            row["cached_bytes"] = 0
        if said["wording"] in ("driver", "bare"):
            row = _with_latest(row, latest)
        rows.append(row)
    return rows


def _latest(series: pa.Table | None) -> dict[int | None, Row]:
    """Last allocated, reserved and used of each rank's log."""
    found: dict[int | None, Row] = {}
    for track in tracks(series):
        if track.kind in ("allocated", "reserved", "used"):
            found.setdefault(track.rank, {})[f"{track.kind}_bytes"] = int(track.size[-1])
    return found


def _with_latest(row: Row, latest: dict[int | None, Row]) -> Row:
    rank = row["rank"]
    if rank is None and len(latest) == 1:
        rank = next(iter(latest))
    if rank not in latest:
        return row
    return {**latest[rank], **row, "rank": rank, "source": "message, series"}


def join(rows: list[Row], messages: list[Row]) -> list[Row]:
    """Recorded moments with what messages add, and the messages that tell of other failures."""
    rest = []
    for message in messages:
        match = next((row for row in rows if _same(row, message)), None)
        if match is None:
            rest.append(message)
            continue
        added = ("capacity_bytes", "process_bytes", "other_bytes", "other_process", "other_largest_bytes",
                 "limit_bytes", "device_free_bytes")  # fmt: skip
        match |= {name: message[name] for name in added if match.get(name) is None and message.get(name) is not None}
        match["capacity_bytes"] = message.get("capacity_bytes") or match.get("capacity_bytes")  # said about this device
        match["source"] = f"{match['source']}, message"
        for row in rows:
            if (row["rank"], row["device"]) == (match["rank"], match["device"]):
                row["capacity_bytes"] = match["capacity_bytes"]
    return [*rows, *rest]


def _same(row: Row, message: Row) -> bool:
    if row["moment"] != "oom" or "message" in row["source"]:
        return False
    ranks = row["rank"], message["rank"]
    if None not in ranks and min(ranks) >= 0 and ranks[0] != ranks[1]:
        return False
    tried, said = row.get("tried_bytes"), message.get("tried_bytes")
    return bool(tried and said and abs(tried - said) <= SAME_REQUEST_RATIO * tried)


def complete(row: Row, expandable: bool | None) -> None:
    """Fill what follows from the rest of a moment; a sum with an unknown term stays unknown."""

    def known(*names: str) -> bool:
        return all(row.get(name) is not None for name in names)

    if not row.get("expandable") and expandable is not None:
        row["expandable"] = expandable
    if known("capacity_bytes", "device_free_bytes") and not known("used_bytes"):
        row["used_bytes"] = row["capacity_bytes"] - row["device_free_bytes"]
    if known("reserved_bytes", "allocated_bytes"):
        row["unallocated_bytes"] = max(0, row["reserved_bytes"] - row["allocated_bytes"])
    if known("device_free_bytes", "unallocated_bytes"):
        row["recoverable_bytes"] = row["device_free_bytes"] + row["unallocated_bytes"]
    if known("process_bytes", "reserved_bytes"):
        row["non_torch_bytes"] = max(0, row["process_bytes"] - row["reserved_bytes"])
    named = row.get("process_bytes") or row.get("reserved_bytes") or row.get("allocated_bytes")
    if known("used_bytes") and named is not None:
        row["unaccounted_bytes"] = max(0, row["used_bytes"] - named - (row.get("other_bytes") or 0))
