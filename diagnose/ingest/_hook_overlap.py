"""Files of the live hook looked at together: what a ring repeats of its history, and ranks that left none.

A ring repeats the end of its history: of its steps only those count that the history has not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow.compute as pc

from diagnose.schema import Tables
from diagnose.units import ranges

_RECORDS = ("hook_history", "hook_ring")


def without_repeats(parts: list[Tables]) -> list[Tables]:
    """`parts` whose rings hold only steps behind the last one of the history of the same rank and attempt."""
    last: dict[tuple[int, int], int] = {}
    for tables in parts:
        if _kind(tables) == "hook_history" and tables["series"].num_rows:
            key = _key(tables)
            last[key] = max(last.get(key, 0), pc.max(tables["series"]["step"]).as_py())
    if not last:
        return parts
    return [_cut(tables, last) if _kind(tables) == "hook_ring" else tables for tables in parts]


def absent(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A quality row for ranks of the job that left no records, given the rows of `files`."""
    records = [row for row in rows if row["kind"] in _RECORDS and row["rank"] is not None]
    world = max((row["world_size"] or 0 for row in records), default=0)
    seen = {row["rank"] for row in records}
    missing = sorted(set(range(world)) - seen) if world <= 1 << 20 else []
    if not missing:
        return []
    detail = f"rank {ranges(missing)} of {world} left no records: the hook was off there, or its files are not here"
    return [{"problem": "hook_absent", "count": len(missing), "detail": detail}]


def begun_late(parts: list[Tables]) -> list[dict[str, Any]]:
    """A quality row per rank whose first records are not there: dropped by the bound, or removed."""
    first: dict[tuple[int, int], int] = {}
    for tables in parts:
        if _kind(tables) in _RECORDS and tables["series"].num_rows:
            key = _key(tables)
            first[key] = min(first.get(key, 1 << 62), pc.min(tables["series"]["step"]).as_py())
    late = {key: step for key, step in first.items() if step > 1}
    if not late:
        return []
    shown = ranges(sorted({rank for rank, _ in late}))
    detail = f"rank {shown}: records before step {min(late.values())} are gone (dropped as the oldest, or removed)"
    return [{"problem": "hook_gap", "count": sum(step - 1 for step in late.values()), "detail": detail}]


def _cut(tables: Tables, last: dict[tuple[int, int], int]) -> Tables:
    rows = tables["series"]
    if not rows.num_rows or (known := last.get(_key(tables))) is None:
        return tables
    return {**tables, "series": rows.filter(pc.greater(rows["step"], known))}


def _kind(tables: Tables) -> str:
    files = tables["files"]
    return str(files["kind"][0]) if files.num_rows == 1 and "series" in tables else ""


def _key(tables: Tables) -> tuple[int, int]:
    return tables["files"]["rank"][0].as_py(), tables["series"]["segment"][0].as_py() or 0
