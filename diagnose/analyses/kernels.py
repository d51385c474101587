"""Device work, one row per kernel, copy or set, classified: what ran, when, who launched it."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import BOOL, INT32, INT64, LABEL, table

SCHEMA = table(
    "piece of device work (in CPU-only traces: of host compute or gloo communication)",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step it belongs to; null outside all steps"),
    ("device", INT32, "device index; null on the host"),
    ("stream", INT64, "stream; null on the host"),
    ("name", LABEL, "kernel name"),
    ("class", LABEL, "compute | comm | copy | unclassified"),
    ("category", LABEL, "finer label: gemm, attention, norm, elementwise, ..., all_reduce, dispatch, ..., memcpy_h2d, memset"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration, after impossible durations were cut"),
    ("launch_ns", INT64, "start of the launching runtime call; null where unlinked"),
    ("launch_end_ns", INT64, "end of the launching runtime call"),
    ("launch_process", INT64, "its process"),
    ("launch_thread", INT64, "its thread"),
    ("in_flight", BOOL, "launched before the recording began"),
    ("graph", BOOL, "launched by a CUDA / HIP graph"),
    ("op", LABEL, "innermost operator open at the launch"),
    ("phase", LABEL, "forward | backward | optimizer; null where nothing says"),
    ("module", LABEL, "nn.Module, FSDP unit or named range open at the launch"),
    ("source", LABEL, "innermost user source line open at the launch, where stacks were recorded"),
)


def kernels(events: pa.Table, device_args: pa.Table, op_args: pa.Table, calls: pa.Table, threads: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
