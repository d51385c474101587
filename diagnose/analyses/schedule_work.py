"""One typical step of a pipeline, piece by piece, and the same order of work as it would run in an even pipeline.

The step is the analysed one whose length is the median, of the copy that takes longest in it. The even pipeline takes
the mean time of each phase for every stage and no time for transfer, and keeps the recorded order of every stage
(`_balanced_replay`): it is the recognised schedule at its ideal, or, for an unknown schedule, the best its order allows
without moving work. Times count from the pipeline's beginning. Nulls: the order could not be replayed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._balanced_replay import replays
from diagnose.analyses._columns import Ints
from diagnose.analyses._compute_work import Compute, compute_work
from diagnose.analyses._pipeline_places import stages_of_groups
from diagnose.analyses._schedule_names import shape_of
from diagnose.schema import INT32, INT64, LABEL, table
from diagnose.schema.pipelines import COMPUTE_PHASES

SCHEMA = table(
    "piece of work of one typical pipeline step",
    ("step", INT64, "step"),
    ("replica", INT32, "copy of the pipeline"),
    ("stage", INT32, "pipeline stage, from 0"),
    ("chunk", INT32, "model chunk on the stage, from 0"),
    ("microbatch", INT32, "micro-batch, from 0"),
    ("phase", LABEL, "forward | backward | backward_input | weight"),
    ("start_ns", INT64, "measured start, from the pipeline's beginning"),
    ("dur_ns", INT64, "measured duration"),
    ("even_start_ns", INT64, "start in the even pipeline"),
    ("even_dur_ns", INT64, "duration in the even pipeline"),
)


def schedule_work(stage_work: pa.Table, groups: pa.Table | None = None) -> pa.Table:
    """Pieces of one step, by stage and start; none where no step has several stages."""
    work = compute_work(stage_work)
    first, last = work.window(work.pipe, work.pipes_count)
    pipe = _typical(work, last - first)
    if pipe is None:
        return SCHEMA.empty()
    mine = work.take(work.pipe == pipe)
    shape = shape_of(mine, stages_of_groups(groups))
    even = replays(mine, shape) if shape.complete else None
    count = len(mine.start)
    columns: dict[str, object] = {
        "step": [work.step_of[pipe]] * count, "replica": [work.replica_of[pipe]] * count, "stage": mine.stage,
        "chunk": mine.chunk, "microbatch": pa.array(mine.microbatch, mask=mine.microbatch < 0),
        "phase": [COMPUTE_PHASES[p] for p in mine.phase.tolist()], "start_ns": mine.start - first[pipe],
        "dur_ns": mine.end - mine.start,
    }  # fmt: skip
    if even is not None:
        begin = np.rint(even.start).astype(np.int64)
        columns |= {"even_start_ns": begin, "even_dur_ns": np.rint(even.end).astype(np.int64) - begin}
    return SCHEMA.build(columns)


def _typical(work: Compute, length: Ints) -> int | None:
    """The pipe of the median step; None where there is none of several stages."""
    stages = np.bincount(work.pipe_of, minlength=work.pipes_count)
    candidates = np.flatnonzero(work.analysed() & (stages > 1))
    if not len(candidates):
        return None
    steps = work.step_of[candidates]
    longest = {s: max(candidates[steps == s].tolist(), key=lambda p: int(length[p])) for s in np.unique(steps).tolist()}
    ordered = sorted(longest.values(), key=lambda p: int(length[p]))
    return int(ordered[(len(ordered) - 1) // 2])
