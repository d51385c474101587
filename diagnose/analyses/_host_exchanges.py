"""Sizes and splits of host all-to-alls (gloo), whose ranges carry none: from the operators that called them.

`c10d::alltoall_base_` records its tensors and split sizes as arguments (with `record_shapes`), the `gloo:all_to_all`
range on a worker thread does not. Where no operator is told (`_host_calls`), nothing is.
"""

from __future__ import annotations

import json
from math import prod
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import codes, dictionary, flags, integers, rows_of
from diagnose.analyses._host_calls import callers

OPERATOR = "c10d::alltoall_base_"
_ELEMENTS = {
    "float": ("float32", 4), "double": ("float64", 8), "c10::Half": ("float16", 2), "c10::BFloat16": ("bfloat16", 2),
    "long int": ("int64", 8), "int": ("int32", 4), "short": ("int16", 2), "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1), "bool": ("bool", 1),
}  # fmt: skip
_OUT, _IN, _OUT_SPLITS, _IN_SPLITS = 0, 1, 3, 4  # arguments of the operator


class Said(NamedTuple):
    """Of one operator; None where it does not say."""

    dtype: str
    size_bytes: int
    received_bytes: int
    in_splits: str | None
    out_splits: str | None


def host_exchanges(calls: pa.Table, events: pa.Table, op_args: pa.Table) -> dict[int, Said]:
    """Row of `calls` (`calls_on_device` of one rank) -> what its operator says, of host all-to-alls alone."""
    is_exchange = np.array([name == "all_to_all" for name in dictionary(calls["op"])], bool)[codes(calls["op"])]
    rows = np.flatnonzero(is_exchange & flags(calls["stream"].is_null()) & flags(calls["size_bytes"].is_null()))
    if not len(rows):
        return {}
    ids = integers(events["event_id"])
    caller = callers(events, rows_of(ids, integers(calls["event_id"])[rows]))
    named = np.array([name == OPERATOR for name in dictionary(events["name"])], bool)[codes(events["name"])]
    rows, caller = rows[(caller >= 0) & named[caller]], caller[(caller >= 0) & named[caller]]
    at = rows_of(integers(op_args["event_id"]), ids[caller])
    said = op_args.select(["input_dims", "input_types", "concrete_inputs"]).take(pa.array(at[at >= 0])).to_pylist()
    found = (_said(*row.values()) for row in said)
    return {row: one for row, one in zip(rows[at >= 0].tolist(), found, strict=True) if one is not None}


def _said(dims: str | None, types: str | None, scalars: str | None) -> Said | None:
    if not dims or not types or not scalars:
        return None
    shapes, kinds, values = (json.loads(text) for text in (dims, types, scalars))
    if len(values) <= _IN_SPLITS or len(shapes) <= _IN or kinds[_IN] not in _ELEMENTS:
        return None
    dtype, width = _ELEMENTS[kinds[_IN]]
    lists = [_compact(values[i]) for i in (_IN_SPLITS, _OUT_SPLITS)]
    return Said(dtype, prod(shapes[_IN]) * width, prod(shapes[_OUT]) * width, *lists)


def _compact(text: str) -> str | None:
    inner = text.strip("[] ").replace(" ", "")
    return f"[{inner}]" if inner else None
