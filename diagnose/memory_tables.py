"""Ingested tables about memory: what the allocator did, what it held at the end, how it said that it failed.

Sizes are bytes as the source gives them: a snapshot's history has requested sizes, its blocks rounded ones.
"""

from __future__ import annotations

from diagnose.tables import BOOL, INT32, INT64, LABEL, TEXT, UINT64, TableSchema, table

MEMORY: dict[str, TableSchema] = {
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
}
