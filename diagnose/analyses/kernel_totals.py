"""Device work by name: the top-kernel list."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "kernel name on one rank",
    ("rank", INT32, "global rank"),
    ("name", LABEL, "kernel name"),
    ("class", LABEL, "as in kernels"),
    ("category", LABEL, "as in kernels"),
    ("calls_count", INT64, "times it ran"),
    ("dur_ns", INT64, "total"),
    ("median_ns", INT64, "median of one call"),
    ("max_ns", INT64, "longest call"),
    ("share_ratio", FLOAT, "of all device work time of the rank"),
    ("module", LABEL, "module or named range with most of its time"),
    ("source", LABEL, "source line with most of its time, where recorded"),
)


def kernel_totals(kernels: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
