"""Parts of a pipeline's step: work, the schedule's bubble, uneven stages or micro-batches, slow workers, transfer.

The step here is the pipeline's: from the first forward of any stage to the last piece of work of any stage. The parts
sum to it. They come from replays of the recorded order (`_balanced_replay`): what falls away when transfer takes no
time, when the micro-batches of a worker are alike, when a worker is like its copies, when all stages are alike. What
is left above a stage's work is the schedule's own; `bubble_ns` of it lies between a stage's first and last work, and
`law_ns` is what the recognised schedule's formula says for these times. A part can be slightly negative: an uneven
pipeline is not always slower than an even one.
Not in these figures: what a step does outside the pipeline (optimizer, gradient reduction, input).

Where only settings tell of the pipeline (a log), one row gives the law alone, with `measured` false: `dur_ns` is then
the mean step that a log or traces know, all other times are null. A job that says it has one stage has a law of 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._balanced_replay import Replays, replays
from diagnose.analyses._bubble_law import law_row
from diagnose.analyses._columns import Ints
from diagnose.analyses._compute_work import BACKWARD, FORWARD, INPUT, WEIGHT, Compute, compute_work
from diagnose.analyses._pipeline_places import stages_of_groups
from diagnose.analyses._schedule_names import Shape, shape_of
from diagnose.formulas.pipeline_bubbles import bubble_ns
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "step of one pipeline (replica)",
    ("step", INT64, "step; null where only settings are known"),
    ("replica", INT32, "copy of the pipeline"),
    ("measured", BOOL, "false: no times, the schedule's law for the settings of the job"),
    ("analysed", BOOL, "false for a first step that is warm-up"),
    ("schedule", LABEL, "gpipe | 1f1b | interleaved | zb1p | zb2p | zbv | dualpipe | unknown"),
    ("stages_count", INT32, "pipeline stages p"),
    ("microbatches_count", INT32, "micro-batches m of the step"),
    ("chunks_count", INT32, "model chunks per stage v"),
    ("dur_ns", INT64, "from the first forward of any stage to the last work of any stage"),
    ("busy_ns", INT64, "mean over stages of the time with work"),
    ("idle_ratio", FLOAT, "1 - busy / duration"),
    ("work_ns", INT64, "a stage's work, balanced"),
    ("schedule_ns", INT64, "idle of the balanced pipeline in this order"),
    ("bubble_ns", INT64, "of it, between the first and last work of the stage that idles longest"),
    (
        "bubble_ratio",
        FLOAT,
        "bubble over duration; of settings alone the law; null where the order could not be replayed",
    ),
    ("imbalance_ns", INT64, "gained if all stages took equally long (one replica: a slow worker counts here)"),
    ("worker_ns", INT64, "gained if workers were as fast as their stage's other copies; null with one replica"),
    ("variation_ns", INT64, "gained if the micro-batches of each worker took equally long"),
    ("transfer_ns", INT64, "gained if every piece of work began as soon as its input was computed"),
    ("law_ns", INT64, "bubble by the schedule's formula for the mean times; null for unknown schedules"),
    ("law_ratio", FLOAT, "law / (law + work)"),
    ("stage_law_ratio", FLOAT, "idle share of the recorded order with the measured times of each stage, no transfer"),
)

_TIMES = ("work_ns", "schedule_ns", "bubble_ns", "imbalance_ns", "worker_ns", "variation_ns", "transfer_ns")


def bubbles(
    stage_work: pa.Table | None = None,
    settings: pa.Table | None = None,
    files: pa.Table | None = None,
    trends: pa.Table | None = None,
    spans: pa.Table | None = None,
    groups: pa.Table | None = None,
) -> pa.Table:
    """One row per step and replica with backward work on at least two stages, else one for the settings."""
    rows = [] if stage_work is None else _measured(compute_work(stage_work), stages_of_groups(groups))
    if not rows and settings is not None:
        law = law_row(settings, files, trends, spans)
        rows = [law] if law else []
    return SCHEMA.of_rows(rows)


def _measured(work: Compute, expected_stages: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    analysed = work.analysed()
    for shape, pipes in _shapes(work, expected_stages):
        part = work.take(np.isin(work.pipe, pipes))
        found = replays(part, shape) if shape.complete else None
        rows += _rows(part, shape, pipes, found)
    rows.sort(key=lambda row: row["pipe"])
    for row in rows:
        row["analysed"] = bool(analysed[row.pop("pipe")])
    return rows


def _shapes(work: Compute, expected_stages: int) -> list[tuple[Shape, Ints]]:
    """Pipes by shape; pipes with the same order of work have the same, told from the one in the middle."""
    starts = np.searchsorted(work.pipe, np.arange(work.pipes_count + 1))
    orders: dict[bytes, list[int]] = {}
    for pipe in range(work.pipes_count):
        mine = work.take(np.arange(starts[pipe], starts[pipe + 1]))
        key = np.column_stack([mine.stage, mine.phase, mine.chunk, mine.microbatch]).tobytes()
        orders.setdefault(key, []).append(pipe)
    members: dict[Shape, list[int]] = {}
    for pipes in orders.values():
        middle = pipes[len(pipes) // 2]
        shape = shape_of(work.take(np.arange(starts[middle], starts[middle + 1])), expected_stages)
        members.setdefault(shape, []).extend(pipes)
    return [(shape, np.array(sorted(pipes))) for shape, pipes in members.items() if shape.stages > 1]


def _rows(work: Compute, shape: Shape, pipes: Ints, found: Replays | None) -> list[dict[str, Any]]:
    first, last = work.window(work.pipe, work.pipes_count)
    present = np.isin(work.pipe_of, pipes)
    busy = np.zeros(work.pipes_count)
    np.add.at(busy, work.pipe_of[present], work.busy_ns()[present])
    busy /= shape.stages
    rows = []
    for pipe in pipes.tolist():
        length = int(last[pipe] - first[pipe])
        row: dict[str, Any] = {
            "pipe": pipe, "step": work.step_of[pipe], "replica": work.replica_of[pipe], "measured": True,
            "schedule": shape.schedule, "stages_count": shape.stages, "microbatches_count": shape.microbatches,
            "chunks_count": shape.chunks, "dur_ns": length, "busy_ns": round(busy[pipe]),
            "idle_ratio": 1 - busy[pipe] / length,
        }  # fmt: skip
        if found is not None:
            row |= _parts(found, pipe, length, bool((work.replica_of != work.replica_of[0]).any()))
            row |= _law(work, shape, pipe, found)
            row["bubble_ratio"] = found.bubble_ns[pipe] / length
            row["stage_law_ratio"] = 1 - busy[pipe] / found.length_ns[pipe, 1]
        rows.append(row)
    return rows


def _parts(found: Replays, pipe: int, length: int, several: bool) -> dict[str, int | None]:
    """Parts of the step; whole ns that sum to it."""
    no_transfer, even, workers, stages = found.length_ns[pipe]
    edges = np.rint([length, no_transfer, even, workers, stages, found.work_ns[pipe], 0]).astype(np.int64)
    transfer, variation, worker, imbalance, schedule, work = (-np.diff(edges)).tolist()
    parts: dict[str, int | None] = dict(
        zip(_TIMES, (work, schedule, round(found.bubble_ns[pipe]), imbalance, worker, variation, transfer), strict=True)
    )
    if not several:
        parts["worker_ns"] = None
    return parts


def _law(work: Compute, shape: Shape, pipe: int, found: Replays) -> dict[str, float | None]:
    """The schedule's formula for the mean times of one micro-batch on one stage."""
    mine = work.pipe == pipe
    duration = (work.end - work.start).astype(float)
    pieces = shape.stages * shape.microbatches
    alone = mine & ~found.together
    whole = 1 if shape.both_ways else shape.chunks

    def mean(*phases: int, of: Any = alone) -> float:
        rows = of & np.isin(work.phase, phases)
        return float(duration[rows].sum() / max(1, rows.sum()) * whole)

    split = bool((work.phase[mine] == WEIGHT).any())
    backward = mean(BACKWARD) if (alone & (work.phase == BACKWARD)).any() else mean(INPUT) + mean(WEIGHT)
    given = mean(INPUT) if split else backward / 2
    weight = mean(WEIGHT) if split else backward - given
    both = mean(FORWARD, of=mine & found.together) if found.together[mine].any() and pieces else None
    law = bubble_ns(shape.schedule, shape.stages, whole, mean(FORWARD), given, weight, both)
    if law is None:
        return {"law_ns": None, "law_ratio": None}
    return {"law_ns": round(law), "law_ratio": law / (law + found.work_ns[pipe])}
