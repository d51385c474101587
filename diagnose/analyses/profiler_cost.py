"""How far the profiler itself distorts the recording."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "kind of cost on one rank",
    ("rank", INT32, "global rank"),
    ("kind", LABEL, "overhead event name, or: stacks, one_step, memory"),
    ("count", INT64, "events"),
    ("dur_ns", INT64, "time; null where not measurable"),
    ("share_ratio", FLOAT, "of the window; null where not measurable"),
)


def profiler_cost(events: pa.Table, steps: pa.Table, settings: pa.Table, files: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
