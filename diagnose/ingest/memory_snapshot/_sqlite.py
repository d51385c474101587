"""A snapshot saved as SQLite, brought to the form of the pickle: tables `segments`, `blocks` and `device_traces`.

Columns are taken by name under either spelling (`addr` or `address`), those of another version are left; stacks are
JSON or plain text. The file is opened read-only and only its tables are read: views and triggers can hold expressions.
Source: the design of torch.cuda.memory._dump_snapshot_sqlite, https://github.com/pytorch/pytorch/pull/178670.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from diagnose.ingest.memory_snapshot._flat import NotASnapshotError

MAGIC = b"SQLite format 3\x00"
TABLES = ("segments", "blocks", "device_traces")
_ALSO = {
    "addr": ("address",), "address": ("addr",), "total_size": ("size",), "segment_id": ("segment_address",),
    "time_us": ("timestamp_us", "time"), "device": ("device_id",), "segment_type": ("type",),
}  # fmt: skip
_SEGMENT = (
    "id", "device", "address", "total_size", "stream", "segment_type", "is_expandable", "segment_pool_id", "frames",
)  # fmt: skip
_BLOCK = ("segment_id", "address", "size", "requested_size", "state", "frames")
_ENTRY = ("device", "action", "addr", "size", "stream", "time_us", "pool_id", "device_free", "frames")
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA})
Row = dict[str, Any]


def document_of(path: Path) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` would have given. NotASnapshotError where the file does not hold one."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.set_authorizer(_only_reading)
            return _document(database)
    except sqlite3.Error as error:
        raise NotASnapshotError(f"an SQLite file that is cut or damaged: {error}") from error


def _only_reading(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _document(database: sqlite3.Connection) -> dict[str, Any]:
    found = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not found & set(TABLES):
        raise NotASnapshotError("an SQLite file without segments or device_traces")
    stacks = _Stacks()
    segments = list(_rows(database, "segments", _SEGMENT, stacks)) if "segments" in found else []
    blocks = list(_rows(database, "blocks", _BLOCK, stacks)) if "blocks" in found else []
    traces: list[list[Row]] = []
    for entry in _rows(database, "device_traces", _ENTRY, stacks) if "device_traces" in found else ():
        device = entry.pop("device", 0)
        while len(traces) <= device:
            traces.append([])
        traces[device].append(entry)
    _place(segments, blocks)
    return {"segments": segments, "device_traces": traces}


def _place(segments: list[Row], blocks: list[Row]) -> None:
    """Give every segment its blocks, in order of address."""
    owner: dict[Any, Row] = {s.get("address"): s for s in segments}
    owner |= {s["id"]: s for s in segments if "id" in s}
    for segment in segments:
        segment["blocks"] = []
        segment["is_expandable"] = bool(segment["is_expandable"]) if segment.get("is_expandable") is not None else None
    for block in sorted(blocks, key=lambda row: row.get("address") or 0):
        key = block.get("segment_id")
        if key not in owner:
            raise NotASnapshotError(f"a block of a segment that is not there ({key!r})")
        owner[key]["blocks"].append(block)


def _rows(database: sqlite3.Connection, table: str, wanted: tuple[str, ...], stacks: _Stacks) -> Iterator[Row]:
    """Rows of a table in the order written, under the names of the pickle; absent columns and NULLs are left out."""
    there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    named = {name: next((n for n in (name, *_ALSO.get(name, ())) if n in there), None) for name in wanted}
    chosen = {name: column for name, column in named.items() if column is not None}
    if not chosen:
        raise NotASnapshotError(f"a table {table} without any known column")
    columns = ", ".join(f'"{column}"' for column in chosen.values())
    for values in database.execute(f"SELECT {columns} FROM {table} ORDER BY rowid"):
        row = {name: value for name, value in zip(chosen, values, strict=True) if value is not None}
        if "frames" in row:
            row["frames"] = stacks.frames(row["frames"])
        for pool in ("pool_id", "segment_pool_id"):
            if pool in row:
                row[pool] = _pool(row[pool])
        yield row


class _Stacks:
    """Frames by their text: equal stacks are one object, as in a pickle."""

    def __init__(self) -> None:
        self._known: dict[Any, list[Any]] = {}

    def frames(self, text: Any) -> list[Any]:
        """The list of frames that a cell holds."""
        if text not in self._known:
            self._known[text] = _parsed(text)
        return self._known[text]


def _parsed(text: Any) -> list[Any]:
    try:
        frames = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return str(text).splitlines()
    return frames if isinstance(frames, list) else [frames]


def _pool(value: Any) -> Any:
    """A pair of numbers from text such as `(0, 0)`, `[0, 0]` or `0,0`."""
    words = str(value).strip("()[] ").split(",")
    whole = all(word.strip().lstrip("-").isdecimal() for word in words)
    return [int(word) for word in words] if whole and len(words) == 2 else None
