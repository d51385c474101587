"""NCCL Inspector's JSON lines: every collective of a communicator with its time and bandwidth, as `bandwidths`.

A record is one operation of one rank; `dump_timestamp_us` is when it was written, so nothing here says when the
operation ran. Small messages and those timed by the CPU may be missing by the plug-in's settings: gaps are normal.
`rank` of a record is the rank in its communicator. Source: NCCL plugins/profiler/inspector, 2.28 to 2.30.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, _signs, quality
from diagnose.ingest.text._nccl_lines import OPERATIONS
from diagnose.schema import INGESTED, Tables

_SIGN = _signs.json("inspector_output_format_version")
_COLUMNS = INGESTED["bandwidths"].arrow.names


def sniff(head: bytes, name: str) -> bool:
    """JSON lines that name the inspector's format."""
    return _SIGN(head, name)


def read(source: Source, options: Options) -> Tables:
    """`bandwidths` with a row per record. InputError where no record can be read."""
    parts, host, damaged, first, rest = [], None, 0, None, b""
    offset = 0
    for piece in source.chunks():
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        rows = []
        for line in lines:
            record = _record(line)
            if record:
                rows.append(_row(record))
                host = host or record.get("metadata", {}).get("hostname")
            elif line.strip():
                damaged, first = damaged + 1, offset if first is None else first
            offset += len(line) + 1
        parts.append(_built(rows))
    record = _record(rest)
    parts += [_built([_row(record)])] if record else []
    damaged += 0 if record or not rest.strip() else 1
    table = pa.concat_tables(parts).unify_dictionaries() if parts else _built([])
    if not table.num_rows:
        raise InputError(source.label, "no complete record", "NCCL Inspector JSON lines", "copy the file again")
    notes = []
    if damaged:
        said = "records that are no complete JSON were left out"
        notes = [
            {"problem": "unreadable_line", "path": source.label, "count": damaged, "byte_offset": first, "detail": said}
        ]
    files = {"file": 0, "path": source.label, "kind": "nccl_inspector", "host": host, "events_count": table.num_rows,
             "status": "repaired" if damaged else "ok", "detail": ""}  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "bandwidths": table,
        "quality": quality(notes),
    }


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and ("coll_perf" in found or "p2p_perf" in found) else None


def _row(record: dict[str, Any]) -> dict[str, Any]:
    header = record.get("header") or {}
    perf, kind = (record["coll_perf"], "coll") if "coll_perf" in record else (record["p2p_perf"], "p2p")
    name = str(perf.get("coll") or perf.get("p2p") or perf.get("p2p_operation") or "")
    time_us = perf.get(f"{kind}_exec_time_us")
    return {
        "op": OPERATIONS.get(name, name or None),
        "size_bytes": perf.get(f"{kind}_msg_size_bytes"),
        "group": header.get("id"),
        "group_size": header.get("n_ranks"),
        "node_count": header.get("nnodes"),
        "seq": perf.get(f"{kind}_sn"),
        "dur_ns": round(time_us * 1000) if isinstance(time_us, (int, float)) else None,
        "algbw_bytes_per_s": _scaled(perf.get(f"{kind}_algobw_gbs")),
        "busbw_bytes_per_s": _scaled(perf.get(f"{kind}_busbw_gbs")),
        "source": "nccl_inspector",
    }


def _scaled(gigabytes_per_s: Any) -> float | None:
    return gigabytes_per_s * 1e9 if isinstance(gigabytes_per_s, (int, float)) and gigabytes_per_s > 0 else None


def _built(rows: list[dict[str, Any]]) -> pa.Table:
    return INGESTED["bandwidths"].build({name: [row.get(name) for row in rows] for name in _COLUMNS})
