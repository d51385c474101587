"""Which recorded arguments become which columns, and the shapes they need to take."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._values import integers, valid, whole

OP_ARGS = {
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "input_dims": "Input Dims",
    "input_types": "Input type",
    "concrete_inputs": "Concrete Inputs",
}
DEVICE_ARGS = {
    "size_bytes": "bytes",
    "context": "context",
    "graph_node": "graph node id",
    "occupancy_ratio": "est. achieved occupancy %",
    "wait_stream": "wait_on_stream",
    "wait_launch_id": "wait_on_cuda_event_record_corr_id",
}
RUNTIME_ARGS = {"size_bytes": "size"}
MEMORY_ARGS = {
    "address": "Addr",
    "size_bytes": "Bytes",
    "device": "Device Id",
    "device_type": "Device Type",
    "allocated_bytes": "Total Allocated",
    "reserved_bytes": "Total Reserved",
}


def tally(column: pa.Array) -> Counter[int]:
    return Counter({r["values"]: r["counts"] for r in column.value_counts().to_pylist() if r["values"] is not None})


def plain(column: pa.Array) -> pa.Array:
    """JSON text as dictionary-coded strings, everything else as it is."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column
    return column.cast(pa.string()).dictionary_encode()


def finite(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_finite(column), column, None)


def product(lists: pa.ListArray) -> pa.Array:
    """Thread blocks of a grid: the product of its three numbers; null for anything else."""
    three = pc.equal(pc.list_value_length(lists), 3).fill_null(False)
    rows = np.flatnonzero(three.to_numpy(zero_copy_only=False))
    blocks = np.zeros(len(lists), np.int64)
    known = np.zeros(len(lists), np.bool_)
    if len(rows):
        flat = lists.take(pa.array(rows)).flatten()
        blocks[rows] = whole(flat, -1).reshape(-1, 3).prod(axis=1)
        known[rows] = valid(flat).reshape(-1, 3).all(axis=1)
    return integers(blocks, known)
