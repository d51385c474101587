"""Router statistics of mixtures of experts (JSON lines, CSV, Parquet, npz) as `router_calls` and `router`.

Any record with counts per expert is one; the names that are known stand in `_names`. Numbers beside them (losses, step
times) become `series` as in other tables of numbers. Records say what routers decided, not what the experts' GPUs
did; whether counts are before or after dropping is settled later (`router_load`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality, series
from diagnose.ingest.expert_counts._documents import Record, kind_of, looks_right, records
from diagnose.ingest.expert_counts._names import are_counts, is_about_routing
from diagnose.ingest.expert_counts._records import Rows
from diagnose.schema import INGESTED, Tables

__all__ = ["Rows", "of_table", "read", "refusals", "sniff"]


def sniff(head: bytes, name: str) -> bool:
    """Whether the document holds counts per expert."""
    return looks_right(head, name)


def read(source: Source, options: Options) -> Tables:
    """`router_calls`, `router`, and `series` of numbers beside them. InputError where no record can be read."""
    rows = _collected(records(source))
    return _tables(source, rows, _series(source) if rows.other_keys else None)


def of_table(source: Source, table: pa.Table) -> Tables | None:
    """The same of a table (Parquet) that another ingester opened; None where it holds no counts per expert."""
    if not are_counts(table.column_names):
        return None
    return _tables(source, _collected(enumerate(table.to_pylist(), 1)), None)


def _collected(found: Iterable[Record]) -> Rows:
    rows = Rows()
    for line, record in found:
        rows.add(line, record)
    return rows


def _tables(source: Source, rows: Rows, beside: pa.Table | None) -> Tables:
    if not rows.calls:
        reasons = "; ".join(rows.refused) or "no counts per expert"
        raise InputError(source.label, f"router records that cannot be read ({reasons})",
                         "whole numbers of tokens per expert", "log counts, not shares or means")  # fmt: skip
    lost = rows.unreadable_count + sum(rows.refused.values())
    files = {
        "file": [0], "path": [source.label], "kind": ["router"], "events_count": [len(rows.calls)],
        "status": ["partial" if lost else "ok"],
        "detail": [f"{lost:,} records left out" if lost else ""],
    }  # fmt: skip
    return {
        **rows.tables(),
        **({"series": beside} if beside is not None else {}),
        "files": INGESTED["files"].build(files),
        "quality": quality([{**note, "path": source.label} for note in refusals(rows)]),
    }


def refusals(rows: Rows) -> list[dict[str, Any]]:
    """Quality rows of what was not taken."""
    notes = []
    if rows.unreadable_count:
        text = "lines that are no record; left out"
        notes.append({"problem": "unreadable_line", "count": rows.unreadable_count, "detail": text})
    if rows.refused:
        reasons = "; ".join(f"{count:,} with {reason}" for reason, count in rows.refused.items())
        detail = f"router records left out: {reasons} (first in line {rows.refused_line:,})"
        notes.append({"problem": "refused_router_record", "count": sum(rows.refused.values()), "detail": detail})
    return notes


def _series(source: Source) -> pa.Table | None:
    """Numbers of the whole step that stand beside the counts: one value per step and rank, not one per layer."""
    if kind_of(source.head()) not in ("jsonl", "csv"):
        return None
    try:
        found = series.read(source, Options())["series"]
    except InputError:
        return None
    keys = ["rank", "step", "metric"]
    rows = pa.table({name: found[name] for name in keys[:2]} | {"metric": found["metric"].cast(pa.string())})
    rows = rows.append_column("value", found["value"]).append_column("row", pa.array(np.arange(found.num_rows)))
    of_step = rows.group_by(keys).aggregate([("value", "min"), ("value", "max"), ("row", "min")])
    differs = of_step.filter(pc.greater(of_step["value_max"], of_step["value_min"]))
    per_layer = set(differs["metric"].to_pylist())
    wanted = [m for m in pc.unique(rows["metric"]).to_pylist() if m not in per_layer and not is_about_routing(m)]
    once = of_step.filter(pc.is_in(of_step["metric"], pa.array(wanted, pa.string())))["row_min"].sort()
    return found.take(once)
