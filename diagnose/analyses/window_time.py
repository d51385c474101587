"""The same partition over the whole recording (first to last device event)."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "part of one rank's window",
    ("rank", INT32, "global rank"),
    ("part", LABEL, "one of PARTS"),
    ("dur_ns", INT64, "time in that part"),
)


def window_time(kernels: pa.Table, idle: pa.Table, collectives: pa.Table, files: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
