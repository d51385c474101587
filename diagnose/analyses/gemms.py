"""Matrix products with recorded shapes: achieved FLOP/s against the device's peak."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "GEMM kernel",
    ("event_id", INT64, "row of events (the kernel)"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("op", LABEL, "aten::mm, aten::addmm, aten::bmm, ..."),
    ("m", INT64, "rows"),
    ("n", INT64, "columns"),
    ("k", INT64, "inner size"),
    ("batch", INT64, "batch"),
    ("dtype", LABEL, "float32, bfloat16, ..."),
    ("dur_ns", INT64, "kernel time of the operator"),
    ("work_flop", FLOAT, "2 * batch * m * n * k"),
    ("rate_flop_per_s", FLOAT, "work / duration"),
    ("peak_flop_per_s", FLOAT, "dense peak for this dtype; null where unknown"),
    ("efficiency_ratio", FLOAT, "rate / peak; null where unknown or above 1"),
)


def gemms(kernels: pa.Table, events: pa.Table, op_args: pa.Table, files: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
