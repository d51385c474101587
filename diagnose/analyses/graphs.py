"""CUDA / HIP graph launches: what they hold and the gaps inside."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, INT64, table

SCHEMA = table(
    "graph launch",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("launch_id", INT64, "correlation of the launch"),
    ("ts_ns", INT64, "first kernel's start"),
    ("dur_ns", INT64, "to the last kernel's end"),
    ("kernels_count", INT64, "kernels in it"),
    ("gap_ns", INT64, "time inside without any of its kernels"),
    ("launch_gap_ns", INT64, "device idle before its first kernel"),
)


def graphs(kernels: pa.Table, events: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
