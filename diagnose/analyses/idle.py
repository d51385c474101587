"""Time without device work inside the window, cut by cause; rows of a rank are disjoint."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "idle interval with one cause",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step that holds it; null outside"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration"),
    ("cause", LABEL, "one of IDLE_CAUSES"),
    ("before", LABEL, "kernel that ends the gap"),
    ("host", LABEL, "host event blamed: the data loader range, cudaMalloc, the synchronise, the operator"),
    ("module", LABEL, "module or named range of the kernel that ends the gap"),
    ("source", LABEL, "source line, where recorded"),
)


def idle(kernels: pa.Table, steps: pa.Table, events: pa.Table, threads: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
