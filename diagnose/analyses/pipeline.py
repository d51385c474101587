"""Time of every pipeline stage in every step: work by phase, and idle time by where in the step it lies.

Warm-up is from the pipeline's beginning to the stage's first backward, cool-down from its last forward to the
pipeline's end, steady what lies between (nothing under GPipe, whose forwards all come first). Idle is all time
without work of the stage, whatever the reason; `bubbles` tells the reasons apart. `dur_ns` is the pipeline's step.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._compute_work import BACKWARD, FORWARD, INPUT, WEIGHT, Compute, compute_work
from diagnose.schema import BOOL, INT32, INT64, table

SCHEMA = table(
    "stage of one pipeline in one step",
    ("step", INT64, "step"),
    ("replica", INT32, "copy of the pipeline"),
    ("stage", INT32, "pipeline stage, from 0"),
    ("rank", INT32, "global rank"),
    ("analysed", BOOL, "false for a first step that is warm-up"),
    ("ts_ns", INT64, "first forward of any stage"),
    ("dur_ns", INT64, "from there to the last work of any stage"),
    ("first_ns", INT64, "from ts_ns to the stage's first work"),
    ("busy_ns", INT64, "time with any work"),
    ("forward_ns", INT64, "sum over forwards"),
    ("backward_ns", INT64, "sum over backwards, weight gradients that run apart not in it"),
    ("weight_ns", INT64, "sum over weight gradients that run apart"),
    ("warmup_idle_ns", INT64, "idle before the stage's first backward"),
    ("steady_idle_ns", INT64, "idle between"),
    ("cooldown_idle_ns", INT64, "idle after the stage's last forward"),
    ("microbatches_count", INT32, "micro-batches of the step"),
)


def pipeline(stage_work: pa.Table) -> pa.Table:
    """One row per step, replica and stage; dur = busy + the three idle times."""
    work = compute_work(stage_work)
    count = len(work.pipe_of)
    begin, end = work.window(work.pipe, work.pipes_count)
    first, _ = work.window(work.worker, count)
    busy, spent = work.busy_ns(), work.end - work.start
    backward: Flags = np.isin(work.phase, (BACKWARD, INPUT))
    turns = _edges(work, backward, begin[work.pipe_of], end[work.pipe_of])
    parts = [_busy_before(work, turn) for turn in turns]
    warm = turns[0] - begin[work.pipe_of] - parts[0]
    cool = end[work.pipe_of] - turns[1] - (busy - parts[1])
    stage, microbatches = np.zeros(count, np.int64), np.zeros(count, np.int64)
    stage[work.worker] = work.stage
    chunks = np.zeros(count, np.int64)
    np.maximum.at(chunks, work.worker, work.chunk + 1)
    np.add.at(microbatches, work.worker[work.phase == FORWARD], 1)
    columns: dict[str, object] = {
        "step": work.step_of[work.pipe_of], "replica": work.replica_of[work.pipe_of], "stage": stage,
        "rank": work.rank_of, "analysed": work.analysed()[work.pipe_of], "ts_ns": begin[work.pipe_of],
        "dur_ns": (end - begin)[work.pipe_of], "first_ns": first - begin[work.pipe_of], "busy_ns": busy,
        "warmup_idle_ns": warm, "cooldown_idle_ns": cool,
        "steady_idle_ns": (end - begin)[work.pipe_of] - busy - warm - cool,
        "microbatches_count": microbatches // np.maximum(chunks, 1),
    }  # fmt: skip
    for name, phases in (("forward_ns", (FORWARD,)), ("backward_ns", (BACKWARD, INPUT)), ("weight_ns", (WEIGHT,))):
        total = np.zeros(count, np.int64)
        mine = np.isin(work.phase, phases)
        np.add.at(total, work.worker[mine], spent[mine])
        columns[name] = total
    return SCHEMA.build(columns)


def _edges(work: Compute, backward: Flags, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Per worker: its first backward, and its last forward's end or the first backward if that is later."""
    count = len(work.pipe_of)
    first, last = end.copy(), begin.copy()
    np.minimum.at(first, work.worker[backward], work.start[backward])
    forward = work.phase == FORWARD
    np.maximum.at(last, work.worker[forward], work.end[forward])
    assert len(first) == count
    return first, np.maximum(first, last)


def _busy_before(work: Compute, moment: Ints) -> Ints:
    """Per worker: busy time before its moment."""
    cut = np.minimum(work.end, moment[work.worker])
    inside = np.flatnonzero(work.start < cut)
    clipped = work.take(inside)._replace(end=cut[inside])
    return clipped.busy_ns()
