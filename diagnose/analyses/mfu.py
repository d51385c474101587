"""Hardware FLOP utilisation per step, or why it cannot be given.

The work is what the recorded operators did: an activation computed twice counts twice, so with recomputation this is
above the model FLOP utilisation that papers quote. It counts products, convolutions and fused attention; everything
else does negligible arithmetic. It is given only where nearly all matrix work is understood, because work that is not
understood (inside compiled regions, captured graphs, custom kernels) would read as inefficiency.

Method: FLOP of the innermost operator with recorded shapes, attributed to the step of its kernels; divided by step
duration times the dense peak (`diagnose.formulas.gpus`) of the number formats it was done in.
Source of the notion: Chowdhery et al., PaLM (2022), appendix B.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers
from diagnose.analyses._host_names import matches
from diagnose.analyses._operator_flop import FORMATS, Floats, Operators, compute_dtypes, longest_kernel, operators
from diagnose.analyses._work import by_rank, of_rank
from diagnose.analyses.gemms import gpu_of
from diagnose.formulas.gpus import find_gpu, peak
from diagnose.schema import FLOAT, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "step",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null: the whole window"),
    ("work_flop", FLOAT, "FLOP of recorded operators; null where no shapes or no device work were recorded"),
    ("covered_ratio", FLOAT, "share of compute time whose operator's FLOP is known, or known to be negligible"),
    ("dur_ns", INT64, "step duration"),
    ("dtype", LABEL, "dtype of most FLOP"),
    ("peak_flop_per_s", FLOAT, "peak used, of the mixture where formats mix; null where unknown"),
    ("peak_source", TEXT, "GPU and source of the peak"),
    ("mfu_ratio", FLOAT, "hardware FLOP utilisation of recorded operators; null where it cannot be given"),
    ("reason", TEXT, "why null, or empty"),
)

MIN_COVERED_RATIO = 0.9
"""Least share of compute time that must be understood; a guess: hidden work then moves the figure by a tenth at most
while matrix kernels run at the step's mean efficiency."""

MIN_FORMAT_RATIO = 0.01
"""Formats with less of the FLOP than this do not move the peak; a guess, far below the figure's own error."""

_NEGLIGIBLE = (
    "norm", "optimizer", "softmax_loss", "embedding", "elementwise", "pool", "reduction", "index_sort", "random",
)  # fmt: skip
_NEGLIGIBLE_NAMES = r"^triton_(poi|per|red|for)_"  # Inductor's pointwise, reduction and foreach kernels


class _Span(NamedTuple):
    """A step, or the window where there are no steps."""

    step: int | None
    dur_ns: int
    whole: bool
    chosen: Flags  # kernels of it


def mfu(
    steps: pa.Table, kernels: pa.Table, events: pa.Table, op_args: pa.Table, files: pa.Table, settings: pa.Table
) -> pa.Table:
    """One row per (rank, step); per rank one row for the window where no step is known."""
    rows: list[dict[str, object]] = []
    for rank, mine in by_rank(kernels):
        ops = operators(of_rank(events, rank), op_args, mine)
        rows += _of_rank(rank, mine, of_rank(steps, rank), ops, gpu_of(files, rank))
    return SCHEMA.of_rows(rows) if rows else SCHEMA.empty()


def _of_rank(rank: int, kernels: pa.Table, steps: pa.Table, ops: Operators, gpu: str | None) -> list[dict[str, object]]:
    understood = (ops.of_kernel >= 0) | _negligible(kernels)
    on_device = flags(kernels["stream"].is_valid()) | flags(kernels["device"].is_valid())
    compute = (_is(kernels["class"], "compute") | _is(kernels["class"], "unclassified")) & on_device
    dur = integers(kernels["dur_ns"])
    dtypes, flop = compute_dtypes(ops, kernels, gpu), ops.flop
    longest = longest_kernel(ops, kernels)
    ran = np.flatnonzero(longest >= 0)
    spans = _spans(kernels, steps)
    whole = np.zeros(len(dur), dtype=bool)
    for span in spans:
        whole |= span.chosen & compute & span.whole
    typical = float(dur[whole & understood].sum() / max(dur[whole].sum(), 1))
    rows = []
    for span in spans:
        time = int(dur[span.chosen & compute].sum())
        mine = ran[span.chosen[longest[ran]]]
        work: Floats = np.bincount(dtypes[mine] + 1, flop[mine], minlength=len(FORMATS) + 1).astype(np.float64)
        row: dict[str, object] = {
            "rank": rank,
            "step": span.step,
            "work_flop": float(work.sum()) if ops.recorded and time else None,
            "covered_ratio": dur[span.chosen & compute & understood].sum() / time if ops.recorded and time else None,
            "dur_ns": span.dur_ns,
        }
        blocked = _blocked(span, time, ops.recorded, typical, kernels)
        rows.append(row | _judge(span, work, gpu, blocked))
    return rows


def _blocked(span: _Span, time: int, recorded: bool, typical: float, kernels: pa.Table) -> str:
    """Why no figure can be given whatever the work is; empty where it can. `typical`: coverage of all whole steps."""
    if not time:
        return "no compute ran on a device"
    if not recorded:
        return "no operator shapes were recorded: profile with record_shapes=True"
    if not span.whole:
        return "the recording cuts this step"
    if typical < MIN_COVERED_RATIO:
        return f"the work of {100 * (1 - typical):.0f} % of compute time is not known{_hidden(kernels, span)}"
    return ""


def _judge(span: _Span, work: Floats, gpu: str | None, blocked: str) -> dict[str, object]:
    """Utilisation from the work per format (first: format unknown, then FORMATS).

    Where formats mix, the peak is the rate at which this mixture would run at best: total work / sum(work / peak).
    """
    total = float(work.sum())
    main = int(work.argmax())
    dtype = FORMATS[main - 1] if total and main else None
    used = [(FORMATS[i - 1] if i else None, w) for i, w in enumerate(work.tolist()) if w > MIN_FORMAT_RATIO * total]
    peaks = [peak(gpu, name) for name, _ in used]
    missing = [p.reason for p in peaks if p.flop_per_s is None]
    ideal_s = sum(w / p.flop_per_s for (_, w), p in zip(used, peaks, strict=True) if p.flop_per_s)
    best = sum(w for _, w in used) / ideal_s if ideal_s and not missing else None
    ratio = total / best / span.dur_ns * 1e9 if best and span.dur_ns > 0 else None
    if blocked:
        reason = blocked
    elif not total:
        reason = "no matrix product, convolution or attention was recorded"
    elif find_gpu(gpu) is None:
        reason = peak(gpu, None).reason
    elif work[0] > MIN_FORMAT_RATIO * total:
        reason = "the number format of some products is not known (float32 may run as TF32)"
    elif missing:
        reason = missing[0]
    elif ratio is None:
        reason = "the step has no duration"
    elif ratio > 1:
        reason = f"{100 * ratio:.0f} % of the peak is impossible: shapes, duration or peak are not what they seem"
    else:
        reason = ""
    return {
        "dtype": dtype,
        "peak_flop_per_s": best,
        "peak_source": "; ".join(p.source for p in peaks) if best else None,
        "mfu_ratio": None if reason else ratio,
        "reason": reason,
    }


def _hidden(kernels: pa.Table, span: _Span) -> str:
    """What hides the work, where one thing holds most of the compute time."""
    dur = integers(kernels["dur_ns"])
    graph = int(dur[span.chosen & flags(kernels["graph"])].sum())
    total = int(dur[span.chosen].sum())
    if 2 * graph > total:
        return ": it ran inside captured graphs"
    unlinked = int(dur[span.chosen & flags(kernels["launch_ns"].is_null())].sum())
    return (
        ": its launches were not recorded"
        if 2 * unlinked > total
        else ": custom or compiled kernels, or arguments not recorded"
    )


def _negligible(kernels: pa.Table) -> Flags:
    """Kernels whose arithmetic does not matter beside products: by category, or Inductor's non-product kernels."""
    names = dictionary(kernels["name"])
    category = np.array([text in _NEGLIGIBLE for text in dictionary(kernels["category"])], dtype=bool)
    inductor = matches(names, _NEGLIGIBLE_NAMES)
    return category[codes(kernels["category"])] | inductor[codes(kernels["name"])]


def _is(column: pa.ChunkedArray, text: str) -> Flags:
    wanted = np.array([value == text for value in dictionary(column)], dtype=bool)
    return wanted[codes(column)]


def _spans(kernels: pa.Table, steps: pa.Table) -> list[_Span]:
    start: Ints = integers(kernels["ts_ns"])
    if not steps.num_rows:
        end = start + integers(kernels["dur_ns"])
        every = np.ones(len(start), dtype=bool)
        return [_Span(None, int(end.max() - start.min()), True, every)] if len(start) else []
    of = np.where(flags(kernels["step"].is_valid()), integers(kernels["step"]), np.iinfo(np.int64).min)
    return [
        _Span(step, dur or 0, complete is not False, of == step)
        for step, dur, complete in zip(*(steps[c].to_pylist() for c in ("step", "dur_ns", "complete")), strict=True)
    ]
