"""A snapshot's dicts as columns: segments, blocks, history, call stacks, settings, marks.

Old formats are brought to the newest: addresses of blocks are running sums inside their segment, `history` gives
requested size and stack (newest first), `active_awaiting_free` is `active_pending_free`. Nothing is dropped silently.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.memory_snapshot._gaps import gaps_in_history

ACTIONS = (
    "alloc", "free", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
    "segment_unmap", "snapshot", "oom",
)  # fmt: skip
"""What the allocator of this version's knowledge records."""

_MOST_FRAMES, _MOST_NAME = 300, 240
_SETTINGS = {"max_split_size", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions"}
_CONF = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
Row = dict[str, Any]


class Flat(NamedTuple):
    """What a snapshot says: columns by table, settings, notes for `quality`, and what `files` needs."""

    columns: dict[str, dict[str, pa.Array]]
    settings: dict[str, str]
    notes: list[Row]
    devices_count: int
    start_ns: int | None
    end_ns: int | None


class NotASnapshotError(ValueError):
    """The document has not the form of a snapshot; the text says where."""


def flatten(document: Any) -> Flat:
    """Columns of a snapshot given as plain data. NotASnapshotError where it has not the form of one."""
    if isinstance(document, list):  # PyTorch 1.13: only the segments
        document = {"segments": document}
    if not isinstance(document, dict) or not ({"segments", "device_traces"} & document.keys()):
        raise NotASnapshotError("neither segments nor device_traces")
    segments, traces = document.get("segments") or [], document.get("device_traces") or []
    _expect_dicts(segments, "segments")
    for trace in traces:
        _expect_dicts(trace, "device_traces")
    stacks, found = Stacks(), _Numbers()
    columns = {
        "segments": _segments(segments, stacks, found),
        "blocks": _blocks(segments, stacks, found),
        "allocations": _history(traces, stacks, found),
        "marks": _marks(document.get("external_annotations") or [], found),
    }
    columns["stacks"] = stacks.columns()
    notes = _notes(document, columns) + found.notes()
    times = columns["allocations"]["ts_ns"]
    known = times.drop_null()
    devices = set(columns["segments"]["device"].to_pylist()) | {i for i, t in enumerate(traces) if t}
    return Flat(
        columns,
        _settings(document.get("allocator_settings")),
        notes,
        len(devices),
        int(np.min(known)) if len(known) else None,
        int(np.max(known)) if len(known) else None,
    )


def _expect_dicts(rows: Any, name: str) -> None:
    if not isinstance(rows, list) or not all(type(row) is dict for row in rows):
        raise NotASnapshotError(f"{name} is no list of records")


class Stacks:
    """Distinct call stacks by a hash of their frames, so that equal stacks of all files have one key."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Any, int | None]] = {}  # holds the frames: an id is free for reuse otherwise
        self._texts: dict[int, str] = {}

    def key(self, frames: Any) -> int | None:
        """Key of a list of frames; None where it is empty or no list."""
        known = self._by_id.get(id(frames))
        if known is None:
            known = frames, self._intern(frames)
            self._by_id[id(frames)] = known
        return known[1]

    def _intern(self, frames: Any) -> int | None:
        if not isinstance(frames, list) or not frames:
            return None
        text = "\n".join(_line(frame) for frame in frames[:_MOST_FRAMES])
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        key = int.from_bytes(digest, "little") >> 1
        self._texts[key] = text
        return key

    def columns(self) -> dict[str, pa.Array]:
        """Columns of `stacks`."""
        texts = [text.encode("utf-8", "replace").decode() for text in self._texts.values()]
        return {"stack": pa.array(list(self._texts), pa.int64()), "frames": pa.array(texts, pa.string())}


def _line(frame: Any) -> str:
    if not isinstance(frame, dict):
        return str(frame)[:_MOST_NAME]
    name = " ".join(str(frame.get("name", "")).split())[:_MOST_NAME]
    return f"{frame.get('filename', '')}:{frame.get('line', 0)} {name}"


class _Numbers:
    """Whole numbers as Arrow arrays; what is none becomes null and is counted."""

    def __init__(self) -> None:
        self.bad_count = 0

    def array(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        """`values` as `kind`."""
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
            low, high = (0, 2**64 - 1) if kind == pa.uint64() else (-(2**63), 2**63 - 1)
            clean = [v if type(v) is int and low <= v <= high else None for v in values]
            self.bad_count += sum(c is None and v is not None for c, v in zip(clean, values, strict=True))
            return pa.array(clean, kind)

    def of(self, rows: Sequence[Row], key: str, kind: pa.DataType | None = None) -> pa.Array:
        """The key of every row; null where a row lacks it."""
        return self.array([row.get(key) for row in rows], kind or pa.int64())

    def notes(self) -> list[Row]:
        """A quality row where a value was none."""
        detail = "numbers of a snapshot that are none became unknown"
        return [{"problem": "unparsed_value", "count": self.bad_count, "detail": detail}] if self.bad_count else []


def _segments(segments: list[Row], stacks: Stacks, found: _Numbers) -> dict[str, pa.Array]:
    return {
        "device": found.of(segments, "device"),
        "address": found.of(segments, "address", pa.uint64()),
        "size_bytes": found.of(segments, "total_size"),
        "stream": found.of(segments, "stream"),
        "pool": _text([_pool(s.get("segment_pool_id")) for s in segments]),
        "kind": _text([s.get("segment_type") for s in segments]),
        "expandable": pa.array([v if isinstance(v := s.get("is_expandable"), bool) else None for s in segments]).cast(
            pa.bool_()
        ),
        "stack": pa.array([stacks.key(s.get("frames")) for s in segments], pa.int64()),
    }


def _blocks(segments: list[Row], stacks: Stacks, found: _Numbers) -> dict[str, pa.Array]:
    owners, rows, addresses = [], [], []
    for segment in segments:
        at = segment.get("address")
        blocks = segment.get("blocks") or []
        _expect_dicts(blocks, "blocks")
        for block in blocks:
            address = block.get("address", at)
            owners.append(segment)
            rows.append(block)
            addresses.append(address)
            if isinstance(address, int) and isinstance(block.get("size"), int):
                at = address + block["size"]
    latest = [(row.get("history") or [{}])[0] for row in rows]
    active = [str(row.get("state", "")).startswith("active") for row in rows]
    requested = [
        row.get("requested_size", old.get("real_size")) if live else None
        for row, old, live in zip(rows, latest, active, strict=True)
    ]
    frames = [
        stacks.key(row.get("frames") or old.get("frames")) if live else None
        for row, old, live in zip(rows, latest, active, strict=True)
    ]
    states = [str(row.get("state")).replace("awaiting_free", "pending_free") for row in rows]
    return {
        "device": found.of(owners, "device"),
        "segment": found.of(owners, "address", pa.uint64()),
        "address": found.array(addresses, pa.uint64()),
        "size_bytes": found.of(rows, "size"),
        "requested_bytes": found.array(requested, pa.int64()),
        "state": _text(states),
        "stack": pa.array(frames, pa.int64()),
    }


def _history(traces: list[list[Row]], stacks: Stacks, found: _Numbers) -> dict[str, pa.Array]:
    rows = traces[0] if len(traces) == 1 else [row for trace in traces for row in trace]
    device = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
    actions = _text([row.get("action") for row in rows])
    is_oom = np.array([row.get("action") == "oom" for row in rows], dtype=bool)
    keep = np.asarray(pc.is_in(actions, pa.array(ACTIONS)), dtype=bool)
    microseconds = found.of(rows, "time_us")
    free = pa.nulls(len(rows), pa.int64())
    if is_oom.any():
        at_oom = [r.get("device_free", r.get("addr")) if r.get("action") == "oom" else None for r in rows]
        free = found.array(at_oom, pa.int64())
    address = found.of(rows, "addr", pa.uint64())
    columns = {
        "device": pa.array(device, pa.int32()),
        "action": actions,
        "address": pc.if_else(pa.array(is_oom), pa.scalar(None, pa.uint64()), address) if len(rows) else address,
        "size_bytes": found.of(rows, "size"),
        "ts_ns": pc.multiply(microseconds, 1000),
        "device_free_bytes": free,
        "stream": found.of(rows, "stream"),
        "pool": _pools(rows),
        "stack": pa.array([stacks.key(row.get("frames")) for row in rows], pa.int64()),
    }
    if keep.all():
        return columns
    columns = {name: values.filter(pa.array(keep)) for name, values in columns.items()}
    return columns | {"_unknown": actions.filter(pa.array(~keep))}


def _pool(value: Any) -> str | None:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return f"{value[0]},{value[1]}"
    return None


def _pools(rows: list[Row]) -> pa.Array:
    """Pools of a history; older recordings have none."""
    if not any("pool_id" in row for row in rows[:100]):
        return (
            pa.array(np.zeros(len(rows), np.int32), mask=np.ones(len(rows), bool)).cast(pa.string()).dictionary_encode()
        )
    return _text([_pool(row.get("pool_id")) for row in rows])


def _marks(rows: Any, found: _Numbers) -> dict[str, pa.Array]:
    """START and END of annotations, paired per device and name like brackets."""
    open_: dict[tuple[Any, Any], list[int]] = {}
    starts: list[Row] = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or not isinstance(row.get("time_us"), int):
            continue
        key = row.get("device"), row.get("name")
        if row.get("stage") == "START":
            open_.setdefault(key, []).append(len(starts))
            starts.append({"device": row.get("device"), "name": str(row.get("name")), "ts": row["time_us"] * 1000})
        elif open_.get(key):
            start = starts[open_[key].pop()]
            start["dur"] = row["time_us"] * 1000 - start["ts"]
    return {
        "device": found.of(starts, "device"),
        "name": _text([row["name"] for row in starts]),
        "ts_ns": found.of(starts, "ts"),
        "dur_ns": found.of(starts, "dur"),
    }


def _settings(values: Any) -> dict[str, str]:
    """Allocator settings: the variable under its own name, what the allocator made of it under `allocator.`."""
    if not isinstance(values, dict):
        return {}
    result = {key: str(values[key]) for key in _CONF if values.get(key)}
    for key in sorted(_SETTINGS & values.keys()):
        value = values[key]
        if key == "roundup_power2_divisions" and isinstance(value, dict):
            value = ",".join(f"{k}:{v}" for k, v in value.items() if v) or "none"
        result[f"allocator.{key}"] = str(value).lower() if isinstance(value, bool) else str(value)
    return result


def _notes(document: Row, columns: dict[str, dict[str, pa.Array]]) -> list[Row]:
    notes: list[Row] = []
    unknown = columns["allocations"].pop("_unknown", None)
    if unknown is not None:
        names = Counter(unknown.to_pylist())
        said = ", ".join(f"{name} x {count}" for name, count in names.most_common(5))
        notes.append({"problem": "unknown_action", "count": len(unknown), "detail": f"left out: {said}"})
    history = columns["allocations"]
    gaps = gaps_in_history(history, columns["blocks"])
    flags = document.get("trace_alloc_overflowed")
    overflowed = any(flags) if isinstance(flags, list) else bool(flags)
    if not gaps.blocks_count and "segments" in document and len(columns["blocks"]["state"]):
        detail = "the state at the end is known, how it came about is not: call _record_memory_history() first"
        notes.append({"problem": "no_history", "count": 1, "detail": detail})
    elif overflowed or gaps.gaps_count:
        why = "its buffer overflowed (raise max_entries); " if overflowed else "recording began late or was cut; "
        detail = f"{why}{gaps.words}; earlier states are rebuilt backwards from the end"
        notes.append({"problem": "incomplete_history", "count": max(1, gaps.gaps_count), "detail": detail})
    size, segments = columns["blocks"]["size_bytes"], columns["segments"]["size_bytes"]
    if (pc.sum(size).as_py() or 0) > (pc.sum(segments).as_py() or 0):
        detail = "blocks are larger than the segments that hold them"
        notes.append({"problem": "inconsistent_state", "count": 1, "detail": detail})
    return notes


def _text(values: list[Any]) -> pa.Array:
    """LABEL array; each distinct value is looked at once."""
    seen: dict[Any, int] = {}
    codes = np.fromiter((seen.setdefault(v, len(seen)) for v in values), np.int32, len(values))
    texts = [None if v is None else str(v) for v in seen]
    if None in texts:
        return pa.array([texts[c] for c in codes], pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(texts, pa.string()))
