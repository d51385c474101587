"""Work of pipeline stages told by their sends and receives alone, where no mark names it.

On a rank of a pipeline group, kernels of one pass (forward or backward) with no exchange launched between them are the
work of one micro-batch: a stage sends or receives before and after each. It counts from the first kernel's start to the
last one's end. Recomputed forward work belongs to its backward. Only stages of one chunk are told rightly: where a step
has not as many forwards as backwards on a rank, nothing is told of that step. Small work beside micro-batches (scaling
a loss, summing a gradient norm) is no micro-batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, flags, integers
from diagnose.analyses._pipeline_places import Places
from diagnose.analyses._pipeline_work import counted
from diagnose.schema import INGESTED

EXCHANGES = ("send", "recv", "p2p")
_PASSES = ("forward", "backward")
LEAST_SHARE = 0.1
"""Of the longest piece of its pass on the rank: shorter ones are no micro-batch; a guess."""


def exchanged_work(kernels: pa.Table, collectives: pa.Table, places: Places, moved: dict[int, int]) -> pa.Table | None:
    """Rows of the shape of `microbatches`; None where no rank of a pipeline group exchanges anything on its device.

    `moved`: rank -> what to add to its times.
    """
    parts = []
    for rank, (stage, copy) in sorted(places.items()):
        found = _of_rank(_only(kernels, rank), _only(collectives, rank))
        if found is None:
            continue
        step, phase, start, end = found
        count = len(step)
        parts.append(
            {
                "rank": np.full(count, rank), "step": step, "stage": np.full(count, stage), "phase": phase,
                "replica": np.full(count, copy), "ts_ns": start + moved.get(rank, 0), "dur_ns": end - start,
            }
        )  # fmt: skip
    if not parts:
        return None
    columns: dict[str, Ints] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names = np.array(_PASSES)[columns["phase"]]
    key = np.column_stack([columns["rank"], columns["step"], columns["phase"]])
    number = counted(np.unique(key, axis=0, return_inverse=True)[1].reshape(-1))
    more = {"phase": names.tolist(), "microbatch": number, "seq": number, "source": ["exchanges"] * len(number)}
    return INGESTED["microbatches"].build({**columns, **more})


def _only(rows: pa.Table, rank: int) -> pa.Table:
    return rows.filter(pa.array(integers(rows["rank"], -1) == rank))


def _of_rank(kernels: pa.Table, collectives: pa.Table) -> tuple[Ints, Ints, Ints, Ints] | None:
    """(step, pass, start, end) of each piece of work."""
    ops, classes, phases = (dictionary(t[c]) for t, c in ((collectives, "op"), (kernels, "class"), (kernels, "phase")))
    exchange = np.array([op in EXCHANGES for op in ops])[codes(collectives["op"])]
    launched = np.sort(integers(collectives["launch_ns"])[exchange & flags(collectives["launch_ns"].is_valid())])
    phase = np.array([_PASSES.index(p) if p in _PASSES else -1 for p in phases])[codes(kernels["phase"])]
    computes = np.array([c == "compute" for c in classes])[codes(kernels["class"])]
    known = computes & (phase >= 0) & flags(kernels["launch_ns"].is_valid()) & flags(kernels["step"].is_valid())
    rows = np.flatnonzero(known & flags(kernels["device"].is_valid()))
    if not len(launched) or not len(rows):
        return None
    launch = integers(kernels["launch_ns"])
    rows = rows[np.argsort(launch[rows], kind="stable")]
    step, phase, start = integers(kernels["step"])[rows], phase[rows], integers(kernels["ts_ns"])[rows]
    end = start + integers(kernels["dur_ns"])[rows]
    before = np.searchsorted(launched, launch[rows])
    fresh = np.append(True, (np.diff(before) > 0) | (np.diff(phase) != 0) | (np.diff(step) != 0))
    first = np.flatnonzero(fresh)
    begun, ended = np.minimum.reduceat(start, first), np.maximum.reduceat(end, first)
    return _whole_steps(step[first], phase[first], begun, ended)


def _whole_steps(step: Ints, phase: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Without small pieces, and only steps with as many forwards as backwards."""
    kept = np.zeros(len(step), bool)
    for code in range(len(_PASSES)):
        mine = phase == code
        kept |= mine & (end - start >= LEAST_SHARE * (end - start)[mine].max(initial=0))
    steps, at = np.unique(step, return_inverse=True)
    balance = np.bincount(at[kept], np.where(phase[kept] == 0, 1, -1), minlength=len(steps))
    kept &= (balance == 0)[at]
    return (step[kept], phase[kept], start[kept], end[kept]) if kept.any() else None
