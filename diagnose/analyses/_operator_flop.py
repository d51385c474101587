"""Recorded operators with known work, and which kernels each of them launched.

A composite operator (`aten::linear`) and the product inside it (`aten::addmm`) are one piece of work: only the
innermost operator with known work counts. Its kernels are all those launched while it was the innermost such one.
Work that the operators did is counted, so an activation computed twice counts twice (hardware FLOP, not model FLOP).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers, rows_of, take
from diagnose.analyses._host_names import matches
from diagnose.analyses._nesting import Nesting, Threads
from diagnose.analyses._shapes import KNOWN, OperatorWork, parse, work_of
from diagnose.formulas.gpus import find_gpu

Floats = NDArray[np.float64]

_TF32_KERNEL = r"(?i)tf32|xf32|s1688(gemm|fprop|dgrad|wgrad)"
_FP32_KERNEL = r"(?i)sgemm|simt|ffma|scudnn|gemv|f32f32_f32f32|gemmSN|winograd_nonfused"


class Operators(NamedTuple):
    """Operator calls with known work, one row per call, and the call behind each kernel.

    `of_kernel` has one entry per kernel of the table asked about: a row of the other columns, or -1.
    """

    name: list[str]
    flop: Floats
    sizes: Ints  # (calls, 4): m, n, k, batch; -1 for what is no single product
    dtype: list[str | None]
    of_kernel: Ints
    recorded: bool  # whether any operator of the rank has shapes


def operators(events: pa.Table, op_args: pa.Table, kernels: pa.Table) -> Operators:
    """Work behind `kernels` (all of one rank, as `events`)."""
    names = dictionary(events["name"])
    wanted = np.array([name in KNOWN for name in names], dtype=bool)
    kinds = np.array([kind == "op" for kind in dictionary(events["kind"])], dtype=bool)
    chosen = np.flatnonzero(wanted[codes(events["name"])] & kinds[codes(events["kind"])])
    ops = events.select(["event_id", "name", "ts_ns", "dur_ns", "process", "thread"]).take(pa.array(chosen))
    shaped = op_args.filter(op_args["input_dims"].is_valid())
    row = rows_of(integers(shaped["event_id"]), integers(ops["event_id"]))
    ops, args = ops.filter(pa.array(row >= 0)), shaped.take(pa.array(row[row >= 0]))
    kind, works = _distinct(ops, args)
    known = np.array([work is not None for work in works], dtype=bool)[kind] if len(kind) else np.zeros(0, dtype=bool)
    ops, kind = ops.filter(pa.array(known)), kind[known]
    threads = Threads(ops["process"], ops["thread"])
    innermost = _nesting(ops, threads, _innermost(ops, threads))
    where = threads.code(kernels["launch_process"], kernels["launch_thread"])
    launched = integers(kernels["launch_ns"], np.iinfo(np.int64).min)
    found = [works[k] or OperatorWork(0, None) for k in kind]
    return Operators(
        ops["name"].to_pylist(),
        np.array([w.flop for w in found], dtype=np.float64),
        np.array([(w.m, w.n, w.k, w.batch) for w in found], dtype=np.int64).reshape(-1, 4),
        [w.dtype for w in found],
        innermost.innermost(where, launched),
        bool(shaped.num_rows),
    )


def compute_dtypes(ops: Operators, kernels: pa.Table, gpu: str | None) -> list[str | None]:
    """Number format each call computed in: float32 becomes tf32 where its longest kernel says so.

    A float32 product on a device with TF32 units whose kernel tells neither gives None: its peak is not known.
    """
    device = find_gpu(gpu)
    has_tf32 = device is None or "tf32" in device.peak_flop_per_s
    longest = longest_kernel(ops, kernels)
    names = dictionary(kernels["name"])
    code = take(codes(kernels["name"]), longest, len(names) - 1)
    tf32, fp32 = matches(names, _TF32_KERNEL)[code], matches(names, _FP32_KERNEL)[code]
    vector_only = device is not None and device.vendor == "AMD"  # TF32 there is opt-in and named in the kernel
    return [
        dtype if dtype != "float32" or not has_tf32 else "tf32" if t else "float32" if f or vector_only else None
        for dtype, t, f in zip(ops.dtype, tf32, fp32, strict=True)
    ]


def longest_kernel(ops: Operators, kernels: pa.Table) -> Ints:
    """Row of the longest kernel of each call; -1 for calls without one."""
    rows = np.flatnonzero(ops.of_kernel >= 0)
    order = rows[np.argsort(integers(kernels["dur_ns"])[rows], kind="stable")]
    longest = np.full(len(ops.name), -1, dtype=np.int64)
    longest[ops.of_kernel[order]] = order  # the last write of a call is its longest
    return longest


def _distinct(ops: pa.Table, args: pa.Table) -> tuple[Ints, list[OperatorWork | None]]:
    """(kind of each call, work of each kind): calls of equal name and arguments are looked at once."""
    columns = [ops["name"], args["input_dims"], args["input_types"], args["concrete_inputs"]]
    if not ops.num_rows:
        return np.zeros(0, dtype=np.int64), []
    texts = [dictionary(column) for column in columns]
    keys, kind = np.unique(np.column_stack([codes(column) for column in columns]), axis=0, return_inverse=True)
    works = []
    for name, *arguments in keys.tolist():
        dims, types, scalars = (text[code] for text, code in zip(texts[1:], arguments, strict=True))
        call = parse(dims, types, scalars)
        works.append(work_of(texts[0][name], call) if call else None)
    return kind.reshape(-1).astype(np.int64), works


def _innermost(ops: pa.Table, threads: Threads) -> Flags:
    """Calls that hold no other call with known work."""
    starts = integers(ops["ts_ns"])
    name = codes(ops["name"])
    inner = np.ones(ops.num_rows, dtype=bool)
    for one in np.unique(name):
        same = name == one
        holder = _nesting(ops, threads, same).innermost(threads.of_event[~same], starts[~same])
        inner[holder[holder >= 0]] = False
    return inner


def _nesting(ops: pa.Table, threads: Threads, chosen: Flags) -> Nesting:
    rows = np.flatnonzero(chosen & (threads.of_event >= 0))
    starts = integers(ops["ts_ns"])[rows]
    return Nesting(threads.of_event[rows], starts, starts + integers(ops["dur_ns"])[rows], rows)
