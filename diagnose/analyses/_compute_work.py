"""Compute work of a pipeline as arrays: one place per piece, by step, replica, stage and start.

A *pipe* is one step of one replica, a *worker* one stage of a pipe. Pieces of a worker that run under each other
(DualPipe's forward and backward) count their time once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers
from diagnose.schema.pipelines import COMPUTE_PHASES

FORWARD, BACKWARD, INPUT, WEIGHT = range(len(COMPUTE_PHASES))
COLD_RATIO = 1.5
"""A first step this much longer than the typical later one is warm-up (compilation, allocation); a guess."""


class Compute(NamedTuple):
    """Pieces of work, all arrays of one length but those per pipe or worker."""

    pipe: Ints
    worker: Ints
    stage: Ints
    chunk: Ints
    microbatch: Ints
    phase: Ints
    start: Ints
    end: Ints
    step_of: Ints  # per pipe
    replica_of: Ints  # per pipe
    pipe_of: Ints  # per worker
    rank_of: Ints  # per worker

    @property
    def pipes_count(self) -> int:
        """Steps times replicas."""
        return len(self.step_of)

    def busy_ns(self) -> Ints:
        """Per worker: time with any work."""
        reach = _running_end(self)
        fresh = np.append(True, self.worker[1:] != self.worker[:-1]) if len(self.worker) else np.zeros(0, bool)
        before = np.where(fresh, self.start, np.append(0, reach[:-1]))
        own = np.maximum(0, self.end - np.maximum(self.start, before))
        return _sums(self.worker, own, len(self.pipe_of))

    def window(self, of: Ints, count: int) -> tuple[Ints, Ints]:
        """(first start, last end) per code in `of` (`pipe` or `worker`)."""
        first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(first, of, self.start)
        np.maximum.at(last, of, self.end)
        return first, last

    def analysed(self) -> Flags:
        """Per pipe: false for a first step that is warm-up."""
        first, last = self.window(self.pipe, self.pipes_count)
        steps, step = np.unique(self.step_of, return_inverse=True)
        longest = np.zeros(len(steps), np.int64)
        np.maximum.at(longest, step, last - first)
        kept = np.ones(len(steps), bool)
        kept[:1] = len(steps) < 3 or longest[0] <= COLD_RATIO * np.median(longest[1:])
        return kept[step]

    def take(self, rows: Ints | Flags) -> Compute:
        """Only some pieces; codes of pipes and workers stay."""
        pieces = (self.pipe, self.worker, self.stage, self.chunk, self.microbatch, self.phase, self.start, self.end)
        pipe, worker, stage, chunk, microbatch, phase, start, end = (p[rows] for p in pieces)
        return Compute(
            pipe, worker, stage, chunk, microbatch, phase, start, end,
            self.step_of, self.replica_of, self.pipe_of, self.rank_of,
        )  # fmt: skip


def compute_work(stage_work: pa.Table) -> Compute:
    """The compute phases of `stage_work`; a step without any backward work (evaluation) is no training step."""
    names = dictionary(stage_work["phase"])
    code = np.array([COMPUTE_PHASES.index(n) if n in COMPUTE_PHASES else -1 for n in names], np.int64)
    phase = code[codes(stage_work["phase"])]
    step, replica, stage = (integers(stage_work[name], -1) for name in ("step", "replica", "stage"))
    start, duration = integers(stage_work["ts_ns"]), integers(stage_work["dur_ns"])
    kept = (phase >= 0) & (stage >= 0) & (duration > 0)
    trained = np.unique(step[kept & (phase != FORWARD)])
    rows = np.flatnonzero(kept & np.isin(step, trained))
    rows = rows[np.lexsort((phase[rows], start[rows], stage[rows], replica[rows], step[rows]))]
    pipes, pipe = _coded(step[rows], replica[rows])
    workers, worker = _coded(pipe, stage[rows])
    rank = np.zeros(len(workers), np.int64)
    rank[worker] = integers(stage_work["rank"], -1)[rows]
    chunk, microbatch = (integers(stage_work[name], -1)[rows] for name in ("chunk", "microbatch"))
    return Compute(
        pipe, worker, stage[rows], np.maximum(chunk, 0), microbatch, phase[rows], start[rows],
        start[rows] + duration[rows], pipes[:, 0], pipes[:, 1], workers[:, 0], rank,
    )  # fmt: skip


def _coded(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    pairs, code = np.unique(np.column_stack([one, other]), axis=0, return_inverse=True)
    return pairs.reshape(-1, 2), code.reshape(-1)


def _running_end(work: Compute) -> Ints:
    """Latest end so far on the worker, this piece included."""
    if not len(work.end):
        return work.end
    span = int(work.end.max() - work.start.min()) + 1
    lifted = work.end - work.start.min() + work.worker * span
    reach: Ints = np.maximum.accumulate(lifted) - work.worker * span + work.start.min()
    return reach


def _sums(code: Ints, values: Ints, count: int) -> Ints:
    result = np.zeros(count, np.int64)
    np.add.at(result, code, values)
    return result
