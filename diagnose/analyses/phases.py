"""Forward, backward and optimizer: how long each took on the device, and what it was made of."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "phase of one step",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step"),
    ("phase", LABEL, "forward | backward | optimizer | unknown"),
    ("busy_ns", INT64, "union of its compute kernels"),
    ("exposed_comm_ns", INT64, "exposed communication launched in it"),
    ("span_ns", INT64, "first start to last end of its device work"),
)


def phases(kernels: pa.Table, steps: pa.Table, collectives: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
