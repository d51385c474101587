"""Host calls that blocked until the device had finished, and the idle that followed."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "blocking host call",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("name", LABEL, "cudaStreamSynchronize, cudaMemcpy, ..."),
    ("op", LABEL, "operator that held it (aten::item, ...); null where none"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "how long the host was blocked"),
    ("idle_ns", INT64, "device idle it caused (cause `sync`)"),
    ("module", LABEL, "module or named range"),
    ("source", LABEL, "source line, where recorded"),
)


def syncs(events: pa.Table, kernels: pa.Table, idle: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
