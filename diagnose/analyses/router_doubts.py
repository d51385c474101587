"""What had to be settled or doubted in router records: rows with the columns of `quality`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import INGESTED

SCHEMA = INGESTED["quality"]
_SAID = {
    "doubled_counts": ("doubled_count", "router records hold twice tokens x top-k: recomputation counts again; halved"),
    "inconsistent_counts": (
        "inconsistent_count",
        "router records contradict themselves (drops as recorded, tokens and counts do not add up); counts are used",
    ),
}


def router_doubts(router_load: pa.Table) -> pa.Table:
    """At most one row per kind of doubt."""
    rows: list[dict[str, Any]] = []
    for problem, (column, detail) in _SAID.items():
        count = pc.sum(router_load[column]).as_py() or 0
        rows += [{"problem": problem, "count": count, "detail": detail}] if count else []
    return SCHEMA.of_rows(rows)
