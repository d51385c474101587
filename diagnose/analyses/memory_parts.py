"""What holds the memory at the failure, the peak and the end: parameters, gradients, optimizer, activations, buffers.

Parts of a moment are disjoint. Where the device's use is known they sum to it exactly, else to what PyTorch reserved:
live allocations by part, `fragmentation` (free in segments that hold a live block), `cached` (wholly free segments),
`non_torch` (in use outside the allocator: context, NCCL, other processes), `unknown` for the rest, never spread.
A trace cannot tell fragmentation from cache, so that goes to `unknown` there. A message alone knows no parts of the
allocated memory. Confidence is the mean over bytes of that of the allocations; null where nothing was judged.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose import sql
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, TEXT, table

MEMORY_PARTS = (
    "parameters", "gradients", "optimizer", "activations", "comm_buffers", "fragmentation", "cached", "non_torch",
    "unknown",
)  # fmt: skip

SCHEMA = table(
    "part of one device's memory at one moment",
    ("rank", INT32, "global rank"),
    ("device", INT32, "device index"),
    ("moment", LABEL, "oom | peak | end"),
    ("failure", INT32, "as in memory_moments"),
    (
        "whole",
        BOOL,
        "as in memory_moments: false where the parts are only those of allocations since the recording began",
    ),
    ("part", LABEL, "one of the six, cached, non_torch or unknown"),
    ("bytes", INT64, "what it holds"),
    ("confidence_ratio", FLOAT, "how sure its assignment is; null where nothing was judged"),
    ("source", TEXT, "what it rests on"),
    ("top_place", TEXT, "place that holds most of the part; null where unknown"),
    ("top_bytes", INT64, "what that place holds"),
    ("loss_bytes", INT64, "of the part, made by the loss or output layer"),
    ("loss_count", INT64, "allocations behind loss_bytes"),
)

_STRANDED = {"message": ("reserved but unallocated", 0.8), "statistics": ("inactive split blocks", 1.0)}
"""What stranded memory is called where no segments are recorded, and how sure it is."""

_ALIVE = """
WITH alive AS (
  SELECT m.number, l.part::VARCHAR AS part, l.size_bytes, l.confidence_ratio, l.evidence::VARCHAR AS evidence, l.place,
         l.loss
  FROM moments AS m JOIN lifetimes AS l
    ON l.rank IS NOT DISTINCT FROM m.rank AND l.device = m.device AND l.source::VARCHAR = m.recorded
   AND l.start_index <= m.index AND l.end_index > m.index
), by_place AS (
  SELECT number, part, place, SUM(size_bytes)::BIGINT AS held FROM alive WHERE place IS NOT NULL
  GROUP BY number, part, place
), places AS (
  SELECT number, part, ARG_MAX(place, held ORDER BY place) AS place, MAX(held) AS held FROM by_place
  GROUP BY number, part
), by_evidence AS (
  SELECT number, part, evidence, SUM(size_bytes)::BIGINT AS held FROM alive GROUP BY number, part, evidence
), reasons AS (
  SELECT number, part, ARG_MAX(evidence, held ORDER BY evidence) AS evidence FROM by_evidence GROUP BY number, part
)
SELECT a.number, a.part, SUM(a.size_bytes)::BIGINT AS held_bytes,
       SUM(a.confidence_ratio * a.size_bytes)
         / NULLIF(SUM(a.size_bytes) FILTER (a.confidence_ratio IS NOT NULL), 0) AS confidence,
       ANY_VALUE(r.evidence) AS evidence, ANY_VALUE(p.place) AS place, ANY_VALUE(p.held) AS held,
       COALESCE(SUM(a.size_bytes) FILTER (a.loss), 0)::BIGINT AS loss_bytes, COUNT(*) FILTER (a.loss) AS loss_count
FROM alive AS a
LEFT JOIN places AS p ON p.number = a.number AND p.part = a.part
LEFT JOIN reasons AS r ON r.number = a.number AND r.part = a.part
GROUP BY a.number, a.part
"""


def memory_parts(memory_moments: pa.Table, lifetimes: pa.Table | None = None) -> pa.Table:
    """Parts of every moment, in the order of MEMORY_PARTS; parts without bytes are left out."""
    moments = memory_moments.to_pylist()
    if not moments:
        return SCHEMA.empty()
    alive = {} if lifetimes is None else _alive(lifetimes, moments)
    rows: list[dict[str, Any]] = []
    for number, moment in enumerate(moments):
        rows += _of_moment(moment, alive.get(number, {}))
    return SCHEMA.of_rows(rows)


def _alive(lifetimes: pa.Table, moments: list[dict[str, Any]]) -> dict[int, dict[str, dict[str, Any]]]:
    recorded = [m["source"].split(",")[0] if m["index"] is not None else None for m in moments]
    keys = pa.table(
        {
            "number": pa.array(range(len(moments)), pa.int64()),
            "recorded": pa.array(recorded, pa.string()),
            **{n: pa.array([m[n] for m in moments], pa.int64()) for n in ("rank", "device", "index")},
        }
    )
    found: dict[int, dict[str, dict[str, Any]]] = {}
    with sql.over(moments=keys, lifetimes=lifetimes) as connection:
        for row in connection.sql(_ALIVE).to_arrow_table().to_pylist():
            found.setdefault(row["number"], {})[row["part"]] = row
    return found


def _of_moment(moment: dict[str, Any], alive: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    since = "" if moment["whole"] is not False else " (since the recording began)"
    parts: dict[str, dict[str, Any]] = {
        part: {
            "bytes": row["held_bytes"],
            "confidence_ratio": row["confidence"],
            "source": f"{moment['source'].split(',')[0]}{since}: {row['evidence']}",
            "top_place": row["place"],
            "top_bytes": row["held"],
            "loss_bytes": row["loss_bytes"],
            "loss_count": row["loss_count"],
        }
        for part, row in alive.items()
    }
    judged = sum(row["held_bytes"] for row in alive.values())
    free, text = moment["unallocated_bytes"], moment["source"]
    if moment["stranded_bytes"] is not None:
        first = text.split(",")[0]
        said, sure = _STRANDED.get(first, ("segments", 1.0))
        _put(parts, "fragmentation", moment["stranded_bytes"], sure, f"{first}: {said}")
        _put(parts, "cached", moment["cached_bytes"] or 0, 1.0, f"{first}: wholly free segments")
    elif free:
        _add_unknown(parts, free, f"{text}: reserved but unallocated, fragmentation or cache")
    reserved, allocated = moment["reserved_bytes"], moment["allocated_bytes"]
    if allocated is not None and allocated > judged:
        _add_unknown(parts, allocated - judged, f"{text}: allocated, by whom is not recorded")
    if moment["used_bytes"] is not None and reserved is not None:
        _put(parts, "non_torch", max(0, moment["used_bytes"] - reserved), 0.9, f"{text}: device use less reserved")
    whole = _whole(moment)
    missing = 0 if whole is None else whole - sum(p["bytes"] for p in parts.values())
    if missing > 0:
        _add_unknown(parts, missing, f"{text}: in use, by whom is not recorded")
    key = {name: moment[name] for name in ("rank", "device", "moment", "failure", "whole")}
    return [{**key, "part": part, **parts[part]} for part in MEMORY_PARTS if part in parts]


def _whole(moment: dict[str, Any]) -> int | None:
    """What the parts must sum to: the device's use, else what is reserved, else what is allocated."""
    return next((moment[n] for n in ("used_bytes", "reserved_bytes", "allocated_bytes") if moment[n] is not None), None)


def _put(parts: dict[str, dict[str, Any]], part: str, size: int, confidence: float, source: str) -> None:
    if size > 0:
        parts[part] = {"bytes": size, "confidence_ratio": confidence, "source": source}


def _add_unknown(parts: dict[str, dict[str, Any]], size: int, source: str) -> None:
    row = parts.setdefault("unknown", {"bytes": 0, "confidence_ratio": None, "source": source})
    row["bytes"] += size
    if source not in row["source"]:
        row["source"] += f"; {source}"
