"""The tables that ingesters write and analyses read: names, columns, types, units.

A column's unit is its suffix (`_ns`, `_bytes`, ...; the closed list is `UNIT_SUFFIXES`). Times are int64
nanoseconds, sizes int64 bytes; `ts_ns` is absolute (trace base added). A null means *unknown*, never zero.
A table exists only if an input could have recorded it, so an absent table and an empty one differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from diagnose.errors import DiagnoseError

Tables = dict[str, pa.Table]

UNIT_SUFFIXES = (
    "_ns", "_bytes_per_s", "_bytes", "_ratio", "_count", "_per_s", "_mhz", "_w", "_c", "_flop_per_s", "_flop",
)  # fmt: skip

TEXT = pa.string()
LABEL = pa.dictionary(pa.int32(), pa.string())  # few distinct values
BOOL = pa.bool_()
INT32 = pa.int32()
INT64 = pa.int64()
UINT64 = pa.uint64()
FLOAT = pa.float64()
RANKS = pa.list_(pa.int32())

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


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: pa.DataType
    doc: str


class TableSchema(NamedTuple):
    """What one row means, and the columns."""

    row: str
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, in column order."""
        return pa.schema([(c.name, c.type) for c in self.columns])

    def empty(self) -> pa.Table:
        """A table of this schema without rows."""
        return self.arrow.empty_table()

    def build(self, columns: Mapping[str, object]) -> pa.Table:
        """Table of this schema from arrays, lists or numpy arrays by name; an absent column is all null.

        All values must have one length; masked numpy arrays become nulls.
        """
        unknown = set(columns) - set(self.arrow.names)
        assert not unknown, f"columns not in the schema: {sorted(unknown)}"
        length = max((len(v) for v in columns.values()), default=0)  # type: ignore[arg-type]
        return pa.table(
            [_array(columns[c.name], c.type) if c.name in columns else pa.nulls(length, c.type) for c in self.columns],
            schema=self.arrow,
        )


def _array(values: object, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == kind else values.cast(kind)
    mask = getattr(values, "mask", None)
    data = values if mask is None else values.data  # type: ignore[attr-defined]
    if pa.types.is_dictionary(kind):
        return pa.array(data, pa.string(), mask=mask).cast(kind)
    return (
        pa.array(data, mask=mask).cast(kind)
        if hasattr(data, "dtype") and data.dtype != object
        else pa.array(data, kind, mask=mask)
    )


def table(row: str, *columns: tuple[str, pa.DataType, str]) -> TableSchema:
    """Declare a table: what a row is, then (name, type, doc) per column."""
    return TableSchema(row, tuple(Column(*c) for c in columns))


def check(name: str, found: pa.Table, schema: TableSchema) -> None:
    """Raise DiagnoseError where a table departs from its schema (our own mistake, not the user's)."""
    if found.schema.equals(schema.arrow):
        return
    want = {c.name: c.type for c in schema.columns}
    have = dict(zip(found.schema.names, found.schema.types, strict=True))
    wrong = [
        f"{k}: {have.get(k, 'absent')} for {want.get(k, 'nothing')}"
        for k in {**want, **have}
        if want.get(k) != have.get(k)
    ]
    raise DiagnoseError(f"table {name} departs from its schema: {'; '.join(wrong) or 'column order'}")


INGESTED: dict[str, TableSchema] = {
    "files": table(
        "input document (a file can hold several)",
        ("file", INT32, "index of this document among all inputs"),
        ("path", TEXT, "path as given; `archive!member` inside archives"),
        ("kind", LABEL, "format: kineto, settings, series, ..."),
        ("rank", INT32, "global rank; negative and distinct where no evidence gives one"),
        ("rank_source", LABEL, "distributedInfo | process_group | file_name | folder | unknown"),
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
        ("events_count", INT64, "events read (metadata and flow records not counted)"),
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
        ("size_bytes", INT64, "message size, nccl-tests convention: all_gather out, others in"),
        ("dtype", LABEL, "normalised: float32, bfloat16, ..."),
        ("in_count", INT64, "elements in on this rank"),
        ("out_count", INT64, "elements out on this rank"),
        ("peer", INT32, "global rank of the peer (send, recv) or root"),
        ("in_splits", LABEL, "JSON text of the split sizes; null when even"),
        ("out_splits", LABEL, "as in_splits"),
        ("splits_truncated", BOOL, "the writer cut the split lists"),
        ("ts_ns", INT64, "start of the recorded event"),
        ("dur_ns", INT64, "its duration"),
        ("state", LABEL, "scheduled | started | completed, where recorded"),
        ("source", LABEL, "record_param_comms | kernel | nccl_log | flight_recorder | hook"),
    ),
    "members": table(
        "process group of one rank",
        ("rank", INT32, "the rank whose file says so"),
        ("group", TEXT, "process group name"),
        ("description", TEXT, "as recorded"),
        ("size", INT32, "ranks in the group"),
        ("ranks", RANKS, "global ranks, where all are known"),
        ("source", LABEL, "distributedInfo | event | assumed_contiguous"),
    ),
    "allocations": table(
        "allocator event, in the order of the recording within a rank and device",
        ("event_id", INT64, "row of events; null where the source is not a trace"),
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank"),
        ("device", INT32, "device index; -1 for host memory"),
        ("device_type", INT32, "c10 enum: 0 CPU, 1 CUDA, 6 HIP, ..."),
        ("action", LABEL, "alloc | free | free_requested | free_completed | segment_alloc | segment_map | ... | oom"),
        ("address", UINT64, "block address; null for oom"),
        ("size_bytes", INT64, "unsigned: rounded in traces, as requested in snapshots; what was asked for at oom"),
        ("ts_ns", INT64, "absolute time"),
        ("thread", INT64, "host thread"),
        ("allocated_bytes", INT64, "allocator's total after the event"),
        ("reserved_bytes", INT64, "reserved after the event"),
        ("device_free_bytes", INT64, "free on the device at oom"),
        ("stream", INT64, "stream the memory belongs to"),
        ("pool", LABEL, "memory pool; null or 0,0 is the default one"),
        ("stack", INT64, "key of stacks; null where none was recorded"),
    ),
    "segments": table(
        "memory segment of the caching allocator when the snapshot was taken",
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank"),
        ("device", INT32, "device index"),
        ("address", UINT64, "where it starts"),
        ("size_bytes", INT64, "reserved bytes; of an expandable segment the mapped ones"),
        ("stream", INT64, "stream it belongs to"),
        ("pool", LABEL, "memory pool; 0,0 is the default one, others serve CUDA graphs or a MemPool only"),
        ("kind", LABEL, "small | large"),
        ("expandable", BOOL, "grows in place; null in old formats"),
        ("stack", INT64, "key of stacks: who made it"),
    ),
    "blocks": table(
        "block of a segment when the snapshot was taken",
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank"),
        ("device", INT32, "device index"),
        ("segment", UINT64, "address of its segment"),
        ("address", UINT64, "where it starts; computed in old formats"),
        ("size_bytes", INT64, "rounded size"),
        ("requested_bytes", INT64, "what was asked for; null where free or not recorded"),
        ("state", LABEL, "active_allocated | active_pending_free | inactive"),
        ("stack", INT64, "key of stacks: who made it, where recorded"),
    ),
    "stacks": table(
        "distinct call stack of an allocation",
        ("stack", INT64, "key: a hash of the frames, equal in all files"),
        ("frames", TEXT, "one `file:line name` a line, innermost first"),
    ),
    "oom_messages": table(
        "out-of-memory message of one process",
        ("file", INT32, "index in files"),
        ("rank", INT32, "rank its line names, else that of the file"),
        ("device", INT32, "device index as the process sees it"),
        ("line", INT64, "line of the text, from 1"),
        ("wording", LABEL, "current | old | async (cudaMallocAsync) | driver (outside the allocator) | bare"),
        ("allocator", LABEL, "who failed: pytorch | cudaMallocAsync | nccl | cuda"),
        ("platform", LABEL, "cuda | hip | ..."),
        ("tried_bytes", INT64, "what was asked for"),
        ("capacity_bytes", INT64, "memory of the device"),
        ("free_bytes", INT64, "free on the device"),
        ("process_bytes", INT64, "in use by this process, PyTorch or not"),
        ("other_bytes", INT64, "in use by other processes on the device; null where the message names none"),
        ("other_process", INT64, "pid of the largest of them"),
        ("other_largest_bytes", INT64, "what that one uses"),
        ("allocated_bytes", INT64, "allocated by PyTorch"),
        ("reserved_bytes", INT64, "reserved by PyTorch"),
        ("unallocated_bytes", INT64, "reserved by PyTorch but unallocated"),
        ("private_bytes", INT64, "allocated in private pools"),
        ("limit_bytes", INT64, "what this process may use, where a limit is set"),
        ("count", INT64, "how often this message stands in the file"),
    ),
    "series": table(
        "value of one metric at one step of one rank",
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank"),
        ("step", INT64, "step number as printed"),
        ("metric", LABEL, "metric with its unit as suffix where known"),
        ("value", FLOAT, "the value"),
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

PROBLEMS: dict[str, str] = {
    "truncated": "the file ends in the middle; events after the cut are lost",
    "damaged_event": "an event was not valid JSON and could not be recovered",
    "repaired_event": "an event was not valid JSON; its text was repaired",
    "non_finite_number": "a bare inf or nan became unknown",
    "invalid_escape": "a backslash was not escaped; names may differ from the original",
    "trailing_comma": "a comma stood before a closing bracket",
    "invalid_utf8": "bytes that are not UTF-8 were replaced",
    "utf16": "the file is UTF-16",
    "byte_order_mark": "the file starts with a byte order mark",
    "misnamed_compression": "the file's name and its compression disagree",
    "damaged_compression": "the compressed stream is cut or damaged",
    "several_documents": "the file holds several traces, one after the other",
    "merged_processes": "events of several ranks share one trace",
    "rank_inferred": "the rank came from the file's name or folder",
    "rank_unknown": "no evidence gives the rank",
    "rank_conflict": "two sources give different ranks",
    "duplicate_rank": "two files claim the same rank",
    "duplicate_file": "the same content was given twice",
    "negative_duration": "an event with a negative duration was left out",
    "impossible_duration": "an event ran past its successor on a serial stream and was cut there",
    "unparsed_value": "a value was not of its type and became unknown",
    "unknown_category": "events of a category this version does not know",
    "missing_base": "times are relative to a base that the file does not carry",
    "unit_mismatch": "times look like another unit than microseconds",
    "gpu_events_missing": "kernel launches were recorded, kernels were not",
    "unlinked_kernels": "device work without the call that launched it",
    "in_flight_kernels": "device work launched before the recording began",
    "truncated_splits": "the writer cut a list of split sizes",
    "unknown_members": "the ranks of a process group are not known",
    "no_collective_record": "communication without size or group",
    "unclassified_kernels": "kernels that are neither known compute nor known communication",
    "no_timed_events": "the file has no timed event",
    "unusable": "the file cannot be used",
    "other_profiler": "the file was written by another profiler",
    "unknown_format": "no ingester knows this file",
    "no_steps": "the recording marks no steps",
    "guessed_steps": "steps were guessed from repetition",
    "one_step": "only one step was recorded",
    "incomplete_step": "a step is cut by the end of the recording",
    "profiler_overhead": "the profiler itself took a visible share",
    "several_runs": "the inputs belong to different runs",
    "unreadable_line": "a line of a table or log could not be read",
    "unknown_setting": "a setting this version does not know",
    "skipped_events": "events outside the requested steps or ranks were left out",
    "incomplete_history": "the allocator's history lacks its beginning or some events; states are rebuilt from the end",
    "no_history": "the allocator's history was not recorded: only the state at the end is known",
    "unknown_action": "allocator events of a kind this version does not know were left out",
    "inconsistent_state": "sizes in a snapshot contradict each other",
    "other_allocator": "memory is managed by an allocator whose state snapshots do not show",
    "cold_call": "first calls after a pause are far slower than the rest",
}
"""Closed list of problems and what each means."""
