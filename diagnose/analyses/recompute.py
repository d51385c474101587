"""Forward work done again in the backward pass (activation checkpointing)."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "step with recorded recomputation",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("busy_ns", INT64, "union of recomputed kernels"),
    ("forward_ns", INT64, "union of the forward's kernels, for comparison"),
    ("kernels_count", INT64, "kernels run again"),
    ("evidence", LABEL, "checkpoint_frame | forward_op_in_backward"),
)


def recompute(kernels: pa.Table, events: pa.Table, op_args: pa.Table, steps: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
