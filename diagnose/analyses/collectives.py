"""Communication as it ran, with what was said about it, how much was hidden, and why not more."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import FLOAT, INT32, INT64, LABEL, UINT64, table

SCHEMA = table(
    "communication kernel (in CPU-only traces: gloo work)",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("group", LABEL, "process group name; null where unknown"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("seq", INT64, "sequence number in the group"),
    ("comm_id", UINT64, "key shared by all ranks of this call"),
    ("op", LABEL, "normalised operation; p2p for send/recv kernels; unknown"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("dtype", LABEL, "element type; null where unknown"),
    ("group_size", INT32, "ranks; null where unknown"),
    ("peer", INT32, "peer or root, where recorded"),
    ("stream", INT64, "stream"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration: waiting for peers and transfer together"),
    ("hidden_ns", INT64, "of it, under compute of the same rank"),
    ("exposed_ns", INT64, "of it, in the partition: no compute, no communication of a dimension with precedence"),
    ("wait_ns", INT64, "waiting for the last peer; null until calls are matched across ranks"),
    ("transfer_ns", INT64, "after the last peer arrived; null until matched"),
    ("algbw_bytes_per_s", FLOAT, "size / duration (transfer where known); null where size is unknown"),
    ("busbw_bytes_per_s", FLOAT, "nccl-tests bus bandwidth; null where unknown"),
    ("bandwidth_bound", LABEL, "lower (one rank: waiting is inside) | measured (matched)"),
    ("phase", LABEL, "forward | backward | optimizer"),
    ("launch_ns", INT64, "start of the launching call"),
    ("blocked_by", LABEL, "why not hidden: same_stream | stream_wait | launched_late | no_compute_left | unknown; null when hidden"),
    ("module", LABEL, "FSDP unit, module or named range"),
    ("source", LABEL, "source line, where recorded"),
    ("evidence", LABEL, "kernel_args | external_id | launch | annotation | name: where op and size come from"),
)


def collectives(kernels: pa.Table, calls: pa.Table, groups: pa.Table, steps: pa.Table, events: pa.Table) -> pa.Table:
    """STUB."""
    return SCHEMA.empty()
