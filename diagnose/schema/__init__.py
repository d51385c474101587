"""The tables that ingesters write and analyses read: names, columns, types, units.

A column's unit is its suffix (`_ns`, `_bytes`, ...; the closed list is `UNIT_SUFFIXES`). Times are int64
nanoseconds, sizes int64 bytes; `ts_ns` is absolute (trace base added). A null means *unknown*, never zero.
A table exists only if an input could have recorded it, so an absent table and an empty one differ.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema.host import HOST
from diagnose.schema.logs import LOGS
from diagnose.schema.memory import MEMORY
from diagnose.schema.moe import MOE
from diagnose.schema.pipelines import PIPELINES
from diagnose.schema.problems import PROBLEMS
from diagnose.schema.tables import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    LABEL,
    RANKS,
    TEXT,
    UINT64,
    UNIT_SUFFIXES,
    Column,
    TableSchema,
    check,
    table,
)

Tables = dict[str, pa.Table]

__all__ = [
    "BOOL", "COMM_DIMS", "COMM_PARTS", "DEVICE_WORK_KINDS", "EVENT_KINDS", "FLOAT", "IDLE_CAUSES", "INGESTED", "INT32",
    "INT64", "LABEL", "PARTS", "PROBLEMS", "RANKS", "TEXT", "UINT64", "UNIT_SUFFIXES", "Column", "TableSchema",
    "Tables", "check", "table",
]  # fmt: skip

EVENT_KINDS = (
    "op",  # host operator (ATen, c10d, autograd)
    "annotation",  # host range a user or a framework named
    "device_annotation",  # its projection on a stream: never work
    "kernel",
    "memcpy",
    "memset",
    "comm",  # device communication that has a category of its own (XPU, MTIA)
    "runtime",  # CUDA / HIP runtime or driver call on a host thread
    "sync",  # device-side record of a synchronisation: never work
    "python",  # python_function stack frame
    "overhead",  # the profiler's own cost
    "instant",
    "counter",
    "other",
)
DEVICE_WORK_KINDS = ("kernel", "memcpy", "memset", "comm")

COMM_DIMS = ("tp", "cp", "ep", "pp", "dp", "other")  # precedence where several are in flight
COMM_PARTS = tuple(f"{dim}_{what}" for dim in COMM_DIMS for what in ("wait", "transfer", "comm"))
IDLE_CAUSES = ("input", "gc", "alloc", "sync", "launch", "idle")
PARTS = ("compute", *COMM_PARTS, "unclassified", "copy", *IDLE_CAUSES)
"""Parts of a step in order of precedence; disjoint; they sum to the step to the nanosecond."""


INGESTED: dict[str, TableSchema] = {
    "files": table(
        "input document (a file can hold several)",
        ("file", INT32, "index of this document among all inputs"),
        ("path", TEXT, "path as given; `archive!member` inside archives"),
        ("kind", LABEL, "format: kineto, settings, series, ..."),
        ("rank", INT32, "global rank; negative and distinct where no evidence gives one"),
        ("rank_source", LABEL, "distributedInfo | process_group | communicator | hook | file_name | folder | unknown"),
        ("host", TEXT, "host name where recorded"),
        ("gpu", TEXT, "device name of the GPU in use"),
        ("gpu_memory_bytes", INT64, "its total memory"),
        ("gpu_count", INT32, "devices the file describes"),
        ("backend", TEXT, "torch.distributed backend"),
        ("world_size", INT32, "ranks of the job"),
        ("base_ns", INT64, "what was added to this file's times"),
        ("start_ns", INT64, "first timed event"),
        ("end_ns", INT64, "end of the last timed event"),
        ("run", INT32, "inputs of different runs differ here"),
        ("events_count", INT64, "timed events kept, instants and counters too; no metadata, no flows"),
        ("status", LABEL, "ok | repaired | partial | unusable"),
        ("detail", TEXT, "one line: what is wrong, or empty"),
    ),
    "events": table(
        "timed trace event",
        ("event_id", INT64, "row number over all inputs; the key of op_args, device_args and derived tables"),
        ("rank", INT32, "global rank"),
        ("file", INT32, "index in files"),
        ("kind", LABEL, "one of EVENT_KINDS"),
        ("name", LABEL, "as recorded, after repair of its text"),
        ("ts_ns", INT64, "absolute start"),
        ("dur_ns", INT64, "duration as recorded (0 for instants)"),
        ("device", INT32, "device index of device work"),
        ("stream", INT64, "stream of device work"),
        ("process", INT64, "OS pid of host events; text pids are distinct negative numbers"),
        ("thread", INT64, "OS thread of host events; text tids are distinct negative numbers"),
        ("launch_id", INT64, "correlation: joins a runtime call to its device work; null when absent or 0"),
        ("external_id", INT64, "id of the linked operator; null when absent or untrustworthy"),
    ),
    "op_args": table(
        "host operator with recorded arguments",
        ("event_id", INT64, "row of events"),
        ("sequence", INT64, "autograd sequence number; backward operators repeat their forward's"),
        ("forward_thread", INT64, "0 in forward, the forward's thread in backward"),
        ("input_dims", LABEL, "JSON text: shape per argument"),
        ("input_types", LABEL, "JSON text: dtype per argument"),
        ("concrete_inputs", LABEL, "JSON text: scalar arguments as text"),
    ),
    "device_args": table(
        "device event, or host call about the device, with recorded arguments",
        ("event_id", INT64, "row of events"),
        ("size_bytes", INT64, "bytes of a copy or set"),
        ("context", INT64, "CUDA context"),
        ("graph_node", INT64, "node inside a CUDA graph"),
        ("grid_count", INT64, "thread blocks launched"),
        ("occupancy_ratio", FLOAT, "estimated achieved occupancy"),
        ("wait_stream", INT64, "stream a stream-wait waits on"),
        ("wait_launch_id", INT64, "correlation of the event record waited for"),
    ),
    "threads": table(
        "named host thread",
        ("rank", INT32, "global rank"),
        ("process", INT64, "as in events"),
        ("thread", INT64, "as in events"),
        ("name", TEXT, "name as recorded"),
    ),
    "calls": table(
        "collective call of one rank, as recorded",
        ("event_id", INT64, "row of events; null where the source is not a trace"),
        ("rank", INT32, "global rank"),
        ("file", INT32, "index in files"),
        ("group", LABEL, "process group name"),
        ("group_size", INT32, "ranks in the group"),
        ("seq", INT64, "sequence number in the group"),
        ("comm_id", UINT64, "key shared by all ranks of this call"),
        ("op", LABEL, "normalised: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send, ..."),
        (
            "size_bytes",
            INT64,
            "message size, nccl-tests convention: all_gather out, others in; nccl_log: count x element as printed",
        ),
        ("dtype", LABEL, "normalised: float32, bfloat16, ..."),
        ("in_count", INT64, "elements in on this rank"),
        ("out_count", INT64, "elements out on this rank"),
        ("peer", INT32, "global rank of the peer (send, recv) or root"),
        ("in_splits", LABEL, "JSON text of the split sizes; null when even"),
        ("out_splits", LABEL, "as in_splits"),
        ("splits_truncated", BOOL, "the writer cut the split lists"),
        ("ts_ns", INT64, "start of the recorded event"),
        ("dur_ns", INT64, "its duration"),
        ("state", LABEL, "scheduled | started | completed | timed_out, where recorded"),
        ("source", LABEL, "record_param_comms | kernel | nccl_log | flight_recorder | watchdog | hook"),
    ),
    "members": table(
        "process group of one rank",
        ("rank", INT32, "the rank whose file says so"),
        ("group", TEXT, "process group name"),
        ("description", TEXT, "as recorded"),
        ("size", INT32, "ranks in the group"),
        ("ranks", RANKS, "global ranks, where all are known"),
        ("source", LABEL, "distributedInfo | event | assumed_contiguous | flight_recorder"),
    ),
    **MEMORY,
    **LOGS,
    **HOST,
    **PIPELINES,
    **MOE,
    "series": table(
        "value of one metric at one step of one rank",
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank"),
        ("step", INT64, "step number as printed"),
        ("metric", LABEL, "metric with its unit as suffix where known"),
        ("value", FLOAT, "the value"),
        ("segment", INT32, "stretch between restarts, from 0 in order of printing; null where a file has no order"),
    ),
    "settings": table(
        "setting of the job",
        ("key", TEXT, "as found: environment variable, `section.key` of job.toml, profiler.* flags"),
        ("value", TEXT, "as found"),
        ("source", TEXT, "file it was read from"),
        ("rank", INT32, "rank it belongs to, where the file says"),
    ),
    "quality": table(
        "kind of problem in one file",
        ("problem", LABEL, "slug, one of PROBLEMS"),
        ("path", TEXT, "file"),
        ("rank", INT32, "its rank"),
        ("count", INT64, "how many times"),
        ("byte_offset", INT64, "first place, in the decompressed file"),
        ("detail", TEXT, "one line for a person"),
    ),
}
