"""A ring repeats the end of its history: of its steps only those count that the history has not."""

from __future__ import annotations

import pyarrow.compute as pc

from diagnose.schema import Tables


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
