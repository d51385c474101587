"""Matrix products with recorded shapes: achieved FLOP/s against the device's peak.

One row per recorded product: several kernels of one operator (split-k and its reduction, a copy of the bias) are one
piece of work done once in the sum of their times. Products inside compiled or captured graphs leave no shapes and are
absent here. A rate above the peak means that the shapes or the peak are not what they seem: no efficiency then.
Formula: 2 * batch * m * n * k over the kernel time of the operator; peaks: `diagnose.formulas.gpus`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import integers, label
from diagnose.analyses._operator_flop import FORMATS, compute_dtypes, longest_kernel, operators
from diagnose.analyses._shapes import PRODUCTS
from diagnose.analyses._work import by_rank, of_rank
from diagnose.formulas.gpus import peak
from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "matrix product",
    ("event_id", INT64, "row of events (its longest kernel)"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("op", LABEL, "aten::mm, aten::addmm, aten::bmm, ..."),
    ("m", INT64, "rows"),
    ("n", INT64, "columns"),
    ("k", INT64, "inner size"),
    ("batch", INT64, "batch"),
    ("dtype", LABEL, "float32, tf32, bfloat16, ...; null where the format of the arithmetic is not known"),
    ("dur_ns", INT64, "kernel time of the operator"),
    ("work_flop", FLOAT, "2 * batch * m * n * k"),
    ("rate_flop_per_s", FLOAT, "work / duration; null where the duration is 0"),
    ("peak_flop_per_s", FLOAT, "dense peak for this dtype; null where unknown"),
    ("efficiency_ratio", FLOAT, "rate / peak; null where unknown or above 1"),
)


def gemms(kernels: pa.Table, events: pa.Table, op_args: pa.Table, files: pa.Table) -> pa.Table:
    """Every recorded product that launched kernels."""
    parts = [_of_rank(mine, of_rank(events, rank), op_args, gpu_of(files, rank)) for rank, mine in by_rank(kernels)]
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty()


def gpu_of(files: pa.Table, rank: int) -> str | None:
    """Device name of a rank, where its files name one and agree."""
    names = {
        gpu for r, gpu in zip(files["rank"].to_pylist(), files["gpu"].to_pylist(), strict=True) if r == rank and gpu
    }
    return names.pop() if len(names) == 1 else None


def _of_rank(kernels: pa.Table, events: pa.Table, op_args: pa.Table, gpu: str | None) -> pa.Table:
    ops = operators(events, op_args, kernels)
    product = np.array([name in PRODUCTS for name, _ in ops.kinds], dtype=bool)
    ran = np.flatnonzero(ops.of_kernel >= 0)
    dur = np.bincount(ops.of_kernel[ran], integers(kernels["dur_ns"])[ran], minlength=len(ops.kind)).astype(np.int64)
    longest = longest_kernel(ops, kernels)
    rows = np.flatnonzero(product[ops.kind] & (longest >= 0))
    dtype = compute_dtypes(ops, kernels, gpu)[rows]
    best = np.array([*(peak(gpu, name).flop_per_s or np.nan for name in FORMATS), np.nan])[dtype]
    work = ops.flop[rows]
    rate = work / np.where(dur[rows] > 0, dur[rows], np.nan) * 1e9
    m, n, k, batch = ops.sizes[rows].T
    kernel = kernels.take(pa.array(longest[rows]))
    floats = {
        "work_flop": work,
        "rate_flop_per_s": rate,
        "peak_flop_per_s": best,
        "efficiency_ratio": np.where(rate <= best, rate / best, np.nan),
    }
    return SCHEMA.build(
        {name: kernel[name] for name in ("event_id", "rank", "step")}
        | {"op": label([name for name, _ in ops.kinds], ops.kind[rows]), "dtype": label(list(FORMATS), dtype)}
        | {"m": m, "n": n, "k": k, "batch": batch, "dur_ns": dur[rows]}
        | {name: np.ma.masked_invalid(values) for name, values in floats.items()}
    )
