"""Model FLOP/s utilisation per step, or why it cannot be given."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import FLOAT, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "step",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null: the whole window"),
    ("work_flop", FLOAT, "FLOP of recorded operators; null where no shapes were recorded"),
    ("covered_ratio", FLOAT, "share of compute time whose operator's FLOP is known"),
    ("dur_ns", INT64, "step duration"),
    ("dtype", LABEL, "dtype of most FLOP"),
    ("peak_flop_per_s", FLOAT, "peak used; null where unknown"),
    ("peak_source", TEXT, "GPU and source of the peak"),
    ("mfu_ratio", FLOAT, "hardware FLOP utilisation of recorded operators; null where it cannot be given"),
    ("reason", TEXT, "why null, or empty"),
)


def mfu(steps: pa.Table, kernels: pa.Table, events: pa.Table, op_args: pa.Table, files: pa.Table, settings: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
