"""Training steps: when the host issued them and when the device ran them."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import BOOL, INT32, INT64, LABEL, table

SCHEMA = table(
    "step of one rank",
    ("rank", INT32, "global rank"),
    ("step", INT64, "number from the annotation, else order"),
    ("name", LABEL, "the mark"),
    ("source", LABEL, "profiler_step | annotation | collectives (a guess)"),
    ("host_ts_ns", INT64, "start of the mark on the host"),
    ("host_dur_ns", INT64, "its duration"),
    ("ts_ns", INT64, "start on the device: see the module docstring"),
    ("dur_ns", INT64, "device duration"),
    ("complete", BOOL, "false where the recording cuts the step"),
)


def steps(events: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
