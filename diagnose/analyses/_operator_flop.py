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

FORMATS = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")
"""Number formats that arithmetic is done in."""

_TF32_KERNEL = r"(?i)tf32|xf32|s1688(gemm|fprop|dgrad|wgrad)"
_FP32_KERNEL = r"(?i)sgemm|simt|ffma|scudnn|gemv|f32f32_f32f32|gemmSN|winograd_nonfused"


class Operators(NamedTuple):
    """Operator calls with known work, one row per call, and the call behind each kernel.

    `kinds` are the distinct (operator, work); `kind` is the index of each call's. `of_kernel` has one entry per
    kernel of the table asked about: a call, or -1. `recorded`: any operator of the rank has shapes.
    """

    kinds: list[tuple[str, OperatorWork]]
    kind: Ints
    of_kernel: Ints
    recorded: bool

    @property
    def flop(self) -> Floats:
        """FLOP of each call."""
        return np.array([work.flop for _, work in self.kinds], dtype=np.float64)[self.kind]

    @property
    def sizes(self) -> Ints:
        """m, n, k, batch of each call; -1 for what is no single product. Shape (calls, 4)."""
        sizes = [(work.m, work.n, work.k, work.batch) for _, work in self.kinds]
        return np.array(sizes, dtype=np.int64).reshape(-1, 4)[self.kind]


def operators(events: pa.Table, op_args: pa.Table, kernels: pa.Table) -> Operators:
    """Work behind `kernels` (all of one rank, as `events`)."""
    wanted = np.array([name in KNOWN for name in dictionary(events["name"])], dtype=bool)
    is_op = np.array([kind == "op" for kind in dictionary(events["kind"])], dtype=bool)
    chosen = np.flatnonzero(wanted[codes(events["name"])] & is_op[codes(events["kind"])])
    ops = events.select(["event_id", "name", "ts_ns", "dur_ns", "process", "thread"]).take(pa.array(chosen))
    shaped = op_args.filter(op_args["input_dims"].is_valid())
    row = rows_of(integers(shaped["event_id"]), integers(ops["event_id"]))
    ops, args = ops.filter(pa.array(row >= 0)), shaped.take(pa.array(row[row >= 0]))
    kind, kinds = _distinct(ops, args)
    ops, kind = ops.filter(pa.array(kind >= 0)), kind[kind >= 0]
    threads = Threads(ops["process"], ops["thread"])
    where = threads.code(kernels["launch_process"], kernels["launch_thread"])
    launched = integers(kernels["launch_ns"], np.iinfo(np.int64).min)
    innermost = _nesting(ops, threads, _innermost(ops, threads))
    return Operators(kinds, kind, innermost.innermost(where, launched), bool(shaped.num_rows))


def compute_dtypes(ops: Operators, kernels: pa.Table, gpu: str | None) -> Ints:
    """Index in FORMATS of the number format each call computed in; -1 where it is not known.

    float32 becomes tf32 where the longest kernel says so. A float32 product on a device with TF32 units whose kernel
    tells neither is not known, and neither is its peak.
    """
    device = find_gpu(gpu)
    has_tf32 = device is None or "tf32" in device.peak_flop_per_s
    names = dictionary(kernels["name"])
    kernel = take(codes(kernels["name"]), longest_kernel(ops, kernels), -1)
    says_tf32, says_fp32 = matches(names, _TF32_KERNEL)[kernel], matches(names, _FP32_KERNEL)[kernel]
    if device is not None and device.vendor == "AMD":
        says_fp32[:] = True  # TF32 is opt-in there, and named in the kernel
    recorded = [FORMATS.index(work.dtype) if work.dtype in FORMATS else -1 for _, work in ops.kinds]
    dtype = np.array(recorded, dtype=np.int64)[ops.kind]
    doubtful = (dtype == FORMATS.index("float32")) & has_tf32
    dtype[doubtful & ~says_fp32] = -1
    dtype[doubtful & says_tf32] = FORMATS.index("tf32")
    return dtype


def longest_kernel(ops: Operators, kernels: pa.Table) -> Ints:
    """Row of the longest kernel of each call; -1 for calls without one."""
    rows = np.flatnonzero(ops.of_kernel >= 0)
    order = rows[np.argsort(integers(kernels["dur_ns"])[rows], kind="stable")]
    longest = np.full(len(ops.kind), -1, dtype=np.int64)
    longest[ops.of_kernel[order]] = order  # the last write of a call is its longest
    return longest


def _distinct(ops: pa.Table, args: pa.Table) -> tuple[Ints, list[tuple[str, OperatorWork]]]:
    """(kind of each call or -1, the kinds): calls of equal name and arguments are looked at once."""
    columns = [ops["name"], args["input_dims"], args["input_types"], args["concrete_inputs"]]
    if not ops.num_rows:
        return np.zeros(0, dtype=np.int64), []
    texts = [dictionary(column) for column in columns]
    keys, inverse = np.unique(np.column_stack([codes(column) for column in columns]), axis=0, return_inverse=True)
    place = np.full(len(keys), -1, dtype=np.int64)
    kinds: list[tuple[str, OperatorWork]] = []
    for index, row in enumerate(keys.tolist()):
        name, dims, types, scalars = (text[code] for text, code in zip(texts, row, strict=True))
        call = parse(dims, types, scalars)
        work = work_of(name, call) if call else None
        if work is not None:
            place[index] = len(kinds)
            kinds.append((name, work))
    return place[inverse.reshape(-1)], kinds


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
