"""Collective calls as recorded in the arguments of operators and kernels, in one vocabulary.

Message sizes follow nccl-tests: all_gather counts the output, everything else the input. A size is unknown, not
zero, where no element count or no type was recorded, and for barriers and waits, which move nothing of the user's.
Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp, torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._values import Int64s, Mask, integers, valid, whole

Value = TypeVar("Value")

_OPS = {
    "all_reduce": "allreduce allreduce_coalesced allreduce_sparse all_reduce all_reduce_coalesced",
    "all_gather": "_allgather_base allgather allgather_into_tensor_coalesced allgather_coalesced all_gather "
    "_all_gather_base all_gather_into_tensor all_gather_v allgatherv all_gather_single",
    "reduce_scatter": "_reduce_scatter_base reduce_scatter reduce_scatter_tensor_coalesced reduce_scatter_tensor "
    "reduce_scatter_v reduce_scatter_single",
    "all_to_all": "all_to_all all_to_allv alltoall_base alltoall all_to_all_single all_to_all_v_single alltoallv",
    "broadcast": "broadcast _broadcast_oop",
    "reduce": "reduce _reduce_oop",
    "send": "send isend",
    "recv": "recv irecv recv_any_source recvanysource",
    "barrier": "barrier all_reduce_barrier",
    "gather": "gather",
    "scatter": "scatter",
    "wait": "wait",
}
OP = {name: op for op, names in _OPS.items() for name in names.split()}

_DTYPES = {
    "float32": ("Float float32 float ncclFloat32 ncclFloat", 4),
    "float64": ("Double float64 double ncclFloat64 ncclDouble", 8),
    "float16": ("Half float16 half c10::Half ncclFloat16 ncclHalf", 2),
    "bfloat16": ("BFloat16 bfloat16 c10::BFloat16 ncclBfloat16", 2),
    "int64": ("Long int64 long ncclInt64", 8),
    "int32": ("Int int32 int ncclInt32 ncclInt", 4),
    "int16": ("Short int16 short", 2),
    "int8": ("Char int8 ncclInt8 ncclChar", 1),
    "uint8": ("Byte uint8 ncclUint8", 1),
    "uint16": ("UInt16 uint16", 2),
    "uint32": ("UInt32 uint32 ncclUint32", 4),
    "uint64": ("UInt64 uint64 ncclUint64", 8),
    "bool": ("Bool bool", 1),
    "complex64": ("ComplexFloat complex64", 8),
    "complex128": ("ComplexDouble complex128", 16),
}
DTYPE = {name: dtype for dtype, (names, _) in _DTYPES.items() for name in names.split()} | {"long int": "int64"}
DTYPE_BYTES = {dtype: size for dtype, (_, size) in _DTYPES.items()}

_WITHOUT_SIZE = ("barrier", "wait")
_POINT_TO_POINT = ("send", "recv")


def dtype_of(name: str) -> str:
    """A type name in numpy's words: float8 variants keep their suffix."""
    return DTYPE.get(name) or (name.lower() if name.lower().startswith("float8") else name)


def bytes_of(dtype: str) -> int | None:
    """Bytes of one element; None for an unknown type."""
    return 1 if dtype.startswith("float8") else DTYPE_BYTES.get(dtype)


def calls_of(args: pa.StructArray) -> dict[str, pa.Array]:
    """Columns of `calls` from parsed collective arguments (all but event, time and source)."""
    field = {f.name: pc.struct_field(args, f.name) for f in args.type}
    op = _translate(field["Collective name"], lambda name: OP.get(name.lower(), name))
    dtype = _translate(field["dtype"], dtype_of)
    in_count = pc.coalesce(field["In msg nelems"], field["In msg size"])
    out_count = pc.coalesce(field["Out msg nelems"], field["Out msg size"])
    size, typed = _sizes(op, dtype, in_count, out_count)
    splits = {k: _translate(field[f"{k.title()} split size"], split_list) for k in ("in", "out")}
    cut = [pc.match_substring(s.cast(pa.string()), "...").fill_null(False) for s in splits.values()]
    return {
        "group": pc.coalesce(field["Process Group Name"], field["Process Group ID"]).dictionary_encode(),
        "group_size": field["Group size"].cast(pa.int32(), safe=False),
        "seq": field["Seq"],
        "comm_id": field["Comms Id"],
        "op": op,
        "size_bytes": size,
        "dtype": pc.if_else(typed, dtype.cast(pa.string()), None).dictionary_encode(),
        "in_count": in_count,
        "out_count": out_count,
        "peer": _peer(op, field).cast(pa.int32(), safe=False),
        "in_splits": splits["in"],
        "out_splits": splits["out"],
        "splits_truncated": pc.or_(*cut),
        # not of the table: what `members` and the rank are read from
        "_description": field["Process Group Description"],
        "_ranks": _translate(field["Process Group Ranks"], split_list).cast(pa.string()),
        "_rank": field["Rank"],
        "_start": field["Global rank start"],
        "_stride": field["Global rank stride"],
    }


def split_list(text: str) -> str | None:
    """JSON text of a list that was written as a list or as text, with `...` where the writer cut it."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, str):
        value = [
            int(part) if re.fullmatch(r"-?\d+", part) else part
            for part in (p.strip(" '\"") for p in value.strip(" []()").split(","))
            if part
        ]
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) and value else None


def _translate(column: pa.Array, change: Callable[[str], str | None]) -> pa.DictionaryArray:
    """Each distinct text through `change`."""
    found = column.cast(pa.string()).dictionary_encode()
    words = pa.array([change(w) for w in found.dictionary.to_pylist()], pa.string())
    return words.take(found.indices).dictionary_encode()


def _equals(column: pa.DictionaryArray, words: tuple[str, ...]) -> Mask:
    found: Mask = pc.is_in(column.cast(pa.string()), pa.array(words)).to_numpy(zero_copy_only=False)
    return found


def _sizes(op: pa.Array, dtype: pa.Array, in_count: pa.Array, out_count: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Bytes per call, and whether the recorded type can be believed."""
    sizes = pa.array([bytes_of(d) for d in dtype.dictionary.to_pylist()], pa.int64())
    element = sizes.take(dtype.indices)
    outward = _equals(op, ("all_gather", "recv", "scatter"))
    counts = pc.if_else(pa.array(outward), out_count, in_count)
    # Without an input tensor (recv) the writer says Byte, whatever the type is.
    guessed = _equals(dtype, ("uint8",)) & (whole(in_count) == 0)
    empty = _equals(op, _WITHOUT_SIZE)
    known = valid(element) & valid(counts) & ~guessed & ~empty
    return integers(whole(element) * whole(counts), known), pa.array(~guessed & ~empty)


def _peer(op: pa.Array, field: dict[str, pa.Array]) -> pa.Array:
    """Global rank of the peer of a send or recv, or of the root; `Rank` is only the peer's rank in the group."""
    peers = {"send": whole(field["Dst Rank"], -1), "recv": whole(field["Src Rank"], -1)}
    root: Int64s = whole(field["Root Rank"], -1)
    result = np.where(_equals(op, ("broadcast", "reduce", "gather", "scatter")), root, -1)
    for name, ranks in peers.items():
        result = np.where(_equals(op, (name,)), ranks, result)
    return integers(result, result >= 0)
