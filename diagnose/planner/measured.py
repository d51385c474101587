"""What a diagnosis says about its own run, as input of `calibrate`: step time, its parts, and the peak memory.

Waiting for late ranks, for input, for garbage collection and for the allocator belongs to the run's faults, not to its
machine or layout: it is `outside_ns`, and candidates keep it. Waiting of pipeline stages is the bubble, which a layout
does change. A part that the diagnosis does not have is absent, never zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

DIMENSIONS = ("tp", "cp", "ep", "pp", "dp")
OUTSIDE = ("tp_wait", "cp_wait", "ep_wait", "dp_wait", "other_wait", "input", "gc", "alloc")
"""Parts of the step that no layout wins back."""


def measured_of(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """`step_ns`, `part_ns` and `memory_bytes` of a diagnosis (its JSON as a dict); empty where it measured nothing."""
    step_time = diagnosis.get("step_time") or {}
    found: dict[str, Any] = {}
    if step_time.get("median_ns"):
        found["step_ns"] = step_time["median_ns"]
        rows = step_time.get("parts") or []
        dur = {row["part"]: row["dur_ns"] for row in rows if row.get("dur_ns") is not None}
        if parts := _parts(dur):
            found["part_ns"] = parts
        if outside := sum(dur.get(part, 0) for part in OUTSIDE):
            found["outside_ns"] = outside
        if any(dur.get(f"{dim}_comm") for dim in DIMENSIONS):
            found["notes"] = ["calls were not matched across ranks: communication includes waiting for late ranks"]
    if peak := _peak(diagnosis.get("memory") or []):
        found["memory_bytes"] = peak
    return found


def _parts(dur: Mapping[str, float]) -> dict[str, float]:
    """Compute, and the transfer (or unsplit) time of each dimension."""
    parts = {"compute": dur["compute"]} if dur.get("compute") else {}
    for dim in DIMENSIONS:
        own = [dur[name] for name in (f"{dim}_transfer", f"{dim}_comm") if name in dur]
        if own:
            parts[dim] = sum(own)
    return parts


def _peak(rows: list[Mapping[str, Any]]) -> float | None:
    """The largest rank's bytes at its peak, all parts together."""
    totals: dict[Any, float] = defaultdict(float)
    for row in rows:
        if row.get("moment") == "peak" and row.get("bytes"):
            totals[row.get("rank")] += row["bytes"]
    return max(totals.values(), default=None)
