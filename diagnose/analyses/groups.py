"""Process groups over all inputs, and the parallel dimension each serves."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "process group",
    ("group", TEXT, "process group name"),
    ("description", TEXT, "as recorded"),
    ("size", INT32, "ranks in it"),
    ("ranks", RANKS, "global ranks; null where not known"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("dim_source", LABEL, "description | ranks | job | unknown"),
    ("node_count", INT32, "nodes it spans; null where unknown"),
)


def groups(members: pa.Table, calls: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
