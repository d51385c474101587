"""Sizes and splits of host all-to-alls (gloo), whose ranges carry none: from the operators that called them.

`c10d::alltoall_base_` records its tensors and split sizes as arguments (with `record_shapes`), the `gloo:all_to_all`
range on a worker thread does not. Workers take calls in the order in which they were called, so the n-th range is the
n-th operator, where a rank has equally many of both; else nothing is told.
"""

from __future__ import annotations

import json
from math import prod
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers, rows_of
from diagnose.analyses._operations import code
from diagnose.analyses._work import of_kind

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


def host_exchanges(op: Ints, start: Ints, events: pa.Table, op_args: pa.Table) -> dict[int, Said]:
    """Row of host communication of one rank (`op`, `start` in ns) -> what its operator says."""
    rows = np.flatnonzero(op == code("all_to_all"))
    operators = of_kind(events, "op")
    named = np.array([name == OPERATOR for name in dictionary(events["name"])], bool)
    operators = operators[named[codes(events["name"])[operators]]]
    if not len(rows) or len(rows) != len(operators):
        return {}
    operators = operators[np.argsort(integers(events["ts_ns"])[operators], kind="stable")]
    at = rows_of(integers(op_args["event_id"]), integers(events["event_id"])[operators])
    if (at < 0).any():
        return {}
    said = op_args.select(["input_dims", "input_types", "concrete_inputs"]).take(pa.array(at)).to_pylist()
    found = (_said(*row.values()) for row in said)
    ordered = rows[np.argsort(start[rows], kind="stable")].tolist()
    return {row: one for row, one in zip(ordered, found, strict=True) if one is not None}


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
