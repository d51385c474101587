"""Records of the live hook (`diagnose.hook_records`): rings and histories of one rank as `series`, gaps as `quality`.

Both files hold the same records; what a ring repeats of its history is dropped when all parts are joined
(`_hook_overlap`). Figures that the hook learns a step later (DDP's log, device events) are put back to the step they
are about. `comm_time_ns` is what the host was seen to wait for: blocking waits in Python and what DDP's backward could
not hide; where DDP was there but not sampled it is unknown, and waits of compiled or functional collectives are never
seen. Steps under a profiler capture keep their number only; those of a muted block of an overhead measurement were not
recorded.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnose import hook_records as layout
from diagnose.errors import InputError
from diagnose.hook_records import UNKNOWN, Header, Records
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

_MAX_BYTES = 256 << 20
_EXPECTED = "records of the live hook"
_SAME = (
    "step_time_ns", "input_time_ns", "forward_time_ns", "backward_time_ns", "optimizer_time_ns", "checkpoint_time_ns",
    "other_phase_time_ns", "gc_time_ns", "gc_count", "memory_allocated_bytes", "memory_reserved_bytes",
    "peak_memory_allocated_bytes", "memory_inactive_bytes", "alloc_retries_count", "ooms_count", "host_memory_bytes",
    "routed_count", "dropped_count", "hook_time_ns", "hook_cpu_time_ns",
)  # fmt: skip
_DISTORTED = layout.CAPTURE

Ints = NDArray[np.int64]


def sniff(head: bytes, name: str) -> bool:
    """Whether the file begins with the hook's mark."""
    return layout.is_records(head)


def read(source: Source, options: Options) -> Tables:
    """files, series, quality of one file. InputError where its header does not hold, or no record does."""
    if source.name.endswith(".ring") and (told := _kept(source)) is not None:
        return told
    data = source.whole(_MAX_BYTES, "more than 256 MiB of records", "a bounded file")
    try:
        head = layout.parse_header(data[: layout.HEADER_BYTES])
    except ValueError as error:
        raise InputError(source.label, str(error), _EXPECTED, "copy it again, or leave it out") from None
    found = layout.decode(head, memoryview(data)[layout.HEADER_BYTES :])
    if not len(found.seq):
        raise InputError(source.label, "a file without a whole record", "one record per step", "leave it out")
    writer = _writer(head, source)
    absent = np.full(len(found.seq), UNKNOWN)
    values = {f.name: found.values.get(f.name, absent) for f in layout.FIELDS}
    rows = [{"path": source.label, "rank": writer["rank"], **row} for row in _doubts(head, found, values)]
    return {
        "files": _files(source, writer, found, values),
        "series": series(values, writer["attempt"]),
        "step_ends": _step_ends(values, writer["attempt"]),
        "quality": quality(rows),
    }


def _kept(source: Source) -> Tables | None:
    """Tables of a ring on this machine whose history beside it has all its records; None where it must be read."""
    path = Path(source.path)
    if source.members or not path.is_file():
        return None
    try:
        head = layout.parse_header(source.head(layout.HEADER_BYTES))
        beside = _histories(path.parent, path.parent.stat().st_mtime_ns).get(path.stem)
        if not head.last or beside is None or _last_of(path.with_name(beside)) < head.last:
            return None
    except (OSError, ValueError):
        return None
    writer = _writer(head, source)
    columns = {"file": 0, "path": source.label, "kind": "hook_ring", "rank": writer["rank"], "rank_source": "hook"}
    columns |= {"world_size": writer["world_size"], "events_count": 0, "status": "ok"}
    columns |= {"host": writer["host"], "detail": "its history has all of it"}
    files = INGESTED["files"].build({name: [value] for name, value in columns.items()})
    return {"files": files, "series": INGESTED["series"].empty(), "quality": quality([])}


@lru_cache(maxsize=4)
def _histories(folder: Path, changed_ns: int) -> dict[str, str]:
    """Name of the newest history of every rank in a folder, by what their names begin with."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".history"))
    return {name.partition(".")[0]: name for name in names}


def _last_of(history: Path) -> int:
    """Number of the last whole record of a history, by its place; 0 where there is none."""
    with history.open("rb") as file:
        head = layout.parse_header(file.read(layout.HEADER_BYTES))
        count = (os.fstat(file.fileno()).st_size - layout.HEADER_BYTES) // head.slot_bytes
        if count < 1:
            return 0
        slot = os.pread(file.fileno(), head.slot_bytes, layout.HEADER_BYTES + (count - 1) * head.slot_bytes)
    found = layout.decode(head, slot)
    return int(found.seq[-1]) if len(found.seq) else 0


def _writer(head: Header, source: Source) -> dict[str, Any]:
    """Whole numbers of the writer, within reason; InputError where the rank is none."""
    found: dict[str, Any] = {}
    for name, most in (("rank", 10**6), ("world_size", 10**7), ("attempt", 10**6)):
        value = head.writer.get(name)
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most
        found[name] = value if good else None
    if found["rank"] is None:
        raise InputError(source.label, "a header without a rank", _EXPECTED, "leave it out")
    host = head.writer.get("host")
    printable = isinstance(host, str) and len(host) <= 255 and host.isprintable()
    return found | {"attempt": found["attempt"] or 0, "host": host if printable else None}


def _files(source: Source, writer: dict[str, Any], found: Records, values: dict[str, Ints]) -> pa.Table:
    wall, memory = values["end_wall_ns"], _known(values["device_total_bytes"])
    row = {
        "file": 0,
        "path": source.label,
        "kind": "hook_ring" if source.name.endswith(".ring") else "hook_history",
        "rank": writer["rank"],
        "rank_source": "hook",
        "host": writer["host"],
        "world_size": writer["world_size"],
        "gpu_memory_bytes": int(memory[-1]) if len(memory) else None,
        "start_ns": int(wall.min()),
        "end_ns": int(wall.max()),
        "events_count": len(found.seq),
        "status": "ok",
        "detail": "",
    }
    return INGESTED["files"].build({name: [value] for name, value in row.items()})


def series(values: dict[str, Ints], attempt: int) -> pa.Table:
    """One row per step and known figure."""
    plain = (values["flags"] & _DISTORTED) == 0
    step = values["step"]
    columns: list[tuple[str, Ints, Ints]] = [(name, step[plain], values[name][plain]) for name in _SAME]
    columns.append(("comm_time_ns", *_comm(values, plain)))
    columns.append(("device_time_ns", step - 1, values["previous_device_time_ns"]))
    free, total = values["device_free_bytes"], values["device_total_bytes"]
    used = np.where((free == UNKNOWN) | (total == UNKNOWN), UNKNOWN, total - free)
    columns.append(("device_memory_used_bytes", step, used))
    names: list[str] = []
    steps, numbers, codes = [], [], []
    for name, at, value in columns:
        kept = (value != UNKNOWN) & (at > 0)
        if name == "step_time_ns":
            kept &= value > 0
        if kept.any():
            steps.append(at[kept])
            numbers.append(value[kept].astype(np.float64))
            codes.append(np.full(int(kept.sum()), len(names), np.int32))
            names.append(name)
    if not names:
        return INGESTED["series"].empty()
    metric = pa.DictionaryArray.from_arrays(pa.array(np.concatenate(codes)), pa.array(names, pa.string()))
    built = {"step": np.concatenate(steps), "metric": metric, "value": np.concatenate(numbers)}
    return INGESTED["series"].build(built | {"segment": np.full(len(metric), attempt, np.int32)})


def _step_ends(values: dict[str, Ints], attempt: int) -> pa.Table:
    """When each step ended, on the wall clock: what samples of the host are put to steps by."""
    known = (values["end_wall_ns"] != UNKNOWN) & (values["step"] > 0)
    step, count = values["step"][known], int(known.sum())
    rows = {"step": step, "ts_ns": values["end_wall_ns"][known], "zoned": np.ones(count, bool)}
    return INGESTED["step_ends"].build(rows | {"segment": np.full(count, attempt, np.int32)})


def _comm(values: dict[str, Ints], plain: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Steps and what the host waited in them: DDP's figure of the step before, and blocking waits of that step."""
    step, wait, ddp = values["step"], values["wait_time_ns"], values["previous_ddp_comm_time_ns"]
    if not (ddp != UNKNOWN).any():
        seen = plain & (wait != UNKNOWN) & bool((values["wait_count"] > 0).any())
        return step[seen], wait[seen]
    known = np.flatnonzero(ddp != UNKNOWN)
    known = known[known > 0]
    before = known - 1
    usable = (step[before] == step[known] - 1) & plain[before] & (wait[before] != UNKNOWN)
    return step[before][usable], (ddp[known] + wait[before])[usable]


def _known(values: Ints) -> Ints:
    known: Ints = values[values != UNKNOWN]
    return known


def _doubts(head: Header, found: Records, values: dict[str, Ints]) -> list[dict[str, Any]]:
    """What the records say about their own gaps."""
    notes: list[tuple[str, int, str]] = []
    if found.torn_count:
        notes.append(("torn_record", found.torn_count, "records that fail their checksum; left out"))
    if found.cut_bytes:
        notes.append(
            ("truncated", 1, "the last record is cut: the process was killed while writing, or the file was cut")
        )
    missing = int(found.seq[-1] - found.seq[0] + 1 - len(found.seq))
    lost = _most(values["lost_records_count"])
    if missing > 0 or lost > 0:
        notes.append(("hook_gap", max(missing, lost), "records of steps that could not be kept (disk full, no access)"))
    if count := int(((values["flags"] & layout.HISTORY_FAILED) != 0).sum()):
        notes.append(("hook_gap", count, "steps during which the history could not be written"))
    if count := int(((values["flags"] & layout.CLOCK_JUMP) != 0).sum()):
        notes.append(("clock_jump", count, "jumps of the wall clock; step times come from the monotonic one"))
    if (errors := _most(values["hook_errors_count"])) > 0:
        notes.append(("hook_error", errors, "errors inside the hook; training went on without what they concerned"))
    every = _most(values["record_every_count"])
    if every > 1:
        notes.append(("hook_throttled", 1, f"steps recorded every {every} at the most, to stay within the budget"))
    if count := int(((values["flags"] & _DISTORTED) != 0).sum()):
        notes.append(("skipped_events", count, "steps under a capture; times left out"))
    return [{"problem": problem, "count": count, "detail": detail} for problem, count, detail in notes]


def _most(values: Ints) -> int:
    known = _known(values)
    return int(known.max()) if len(known) else 0
