"""Process groups and the rank of a document, from its header and from what its collectives say of their groups."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._header import whole
from diagnose.ingest.kineto._members import Group, Row, from_event, from_header
from diagnose.ingest.kineto._record import Record


def members_of(record: Record, info: dict[str, object], faults: Faults) -> list[Row]:
    world = whole(info.get("world_size"))
    rows = from_header(info.get("pg_config"), world)
    for group in _groups(record):
        row = from_event(group, world)
        known = rows.get(group.name)
        if known is None or (known["ranks"] is None and row["ranks"] is not None):
            rows[group.name] = row if known is None else {**known, **{k: row[k] for k in ("ranks", "size", "source")}}
    unknown = [name for name, row in rows.items() if row["ranks"] is None]
    faults.add("unknown_members", len(unknown), detail="groups " + ", ".join(unknown[:8]))
    cut = sum(int(pc.sum(part["splits_truncated"]).as_py() or 0) for part in record.parts["calls"])
    faults.add("truncated_splits", cut, detail="calls whose split sizes are cut")
    return list(rows.values())


def _groups(record: Record) -> list[Group]:
    columns = {"name": "group", "description": "_description", "size": "group_size", "ranks": "_ranks"}
    rows = _distinct(record, columns | {"start": "_start", "stride": "_stride"})
    return [Group(**row) for row in rows if row["name"]]


def _distinct(record: Record, columns: dict[str, str]) -> list[dict[str, Any]]:
    """Distinct rows of some columns of the calls."""
    parts = [
        pa.table({name: _undictionary(part[column]) for name, column in columns.items()})
        for part in record.parts["calls"]
    ]
    if not parts:
        return []
    rows: list[dict[str, Any]] = pa.concat_tables(parts).group_by(list(columns)).aggregate([]).to_pylist()
    return rows


def _undictionary(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def rank_of(record: Record, info: dict[str, object]) -> tuple[int | None, str | None]:
    """Global rank as the content says it: the header, else this rank's place in a fully listed group."""
    rank = whole(info.get("rank"))
    if rank is not None:
        return rank, "distributedInfo"
    found: set[int] = set()
    for row in _distinct(record, {"op": "op", "place": "_rank", "ranks": "_ranks"}):
        if row["op"] in ("send", "recv") or row["place"] is None or row["ranks"] is None or "..." in row["ranks"]:
            continue
        ranks = json.loads(row["ranks"])
        if 0 <= row["place"] < len(ranks):
            found.add(ranks[row["place"]])
    return (found.pop(), "process_group") if len(found) == 1 else (None, None)
