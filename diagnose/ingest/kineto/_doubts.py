"""Doubts about a trace as a whole: what it lacks, and times that may not be microseconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._document import Document
from diagnose.ingest.kineto._record import Record
from diagnose.ingest.kineto._sort import KIND

_IMPLAUSIBLE_KERNEL_NS = 50_000_000  # the longest usual compute kernels take tens of milliseconds


def judge(document: Document, base: int | None) -> None:
    """Doubts about the document as a whole."""
    record, faults = document.record, document.faults
    if record.count == record.first_event:
        faults.add("no_timed_events", detail="no timed events in this file")
        return
    if record.relative and base is None:
        faults.add("missing_base", record.relative, detail="times are relative and no baseTimeNanoseconds is given")
    _judge_unit(document, base)
    if record.launches and not record.works:
        said = f"{record.launches} kernel launches, 0 kernels recorded"
        faults.add("gpu_events_missing", record.launches, detail=said)
    if len(record.op_processes) > 1:
        count = len(record.op_processes)
        faults.add("merged_processes", count, detail=f"merged trace, {count} processes")


def _judge_unit(document: Document, base: int | None) -> None:
    """Times that are not microseconds, as far as one file can tell; other ranks may tell more."""
    record, faults = document.record, document.faults
    if record.large:
        said = "times are nanoseconds where microseconds belong, and were read as such"
        faults.add("unit_mismatch", record.large, detail=said)
    # The first builds with nanoseconds (March 2024) wrote .5 for 5 ns: no fraction then lies below .1
    if record.absolute and record.fractions >= 200 and not record.small_fractions and _spread(record):
        said = "digits behind the microsecond seem unpadded; times can be wrong by up to a microsecond"
        faults.add("unit_mismatch", record.fractions, detail=said)
    # No version of the profiler writes whole relative microseconds without a base: the file is home-made.
    home_made = base is None and not record.absolute and not record.fractions
    if home_made and document.header.get("displayTimeUnit") == "ns":
        typical = _typical_kernel_ns(record)
        if typical is not None and typical >= _IMPLAUSIBLE_KERNEL_NS:
            said = f"a typical compute kernel would take {typical / 1e6:.0f} ms: these times look like nanoseconds"
            faults.add("unit_mismatch", record.count - record.first_event, detail=said)


def _spread(record: Record) -> bool:
    """Whether fractions take many values; floats of absolute times only take quarters of a microsecond."""
    part = max(record.parts["events"], key=lambda p: len(p["ts_ns"]))
    return len(np.unique(np.asarray(part["ts_ns"])[:4096] % 1000)) > 50


def _typical_kernel_ns(record: Record) -> float | None:
    """Median duration of kernels that do not communicate."""
    found = []
    for part in record.parts["events"]:
        if "device" in part:
            work = np.asarray(part["kind"]) == KIND["kernel"]
            waits = pc.match_substring_regex(part["name"].cast(pa.string()), "(?i)nccl|rccl|nvshmem").fill_null(False)
            found.append(np.asarray(part["dur_ns"])[work & ~np.asarray(waits)])
    lengths = np.concatenate(found) if found else np.zeros(0)
    return float(np.median(lengths)) if len(lengths) else None
