"""A pipeline's steps replayed without transfer, without uneven micro-batches, slow workers or uneven stages.

Each replay idealises one thing more, keeps the order of work that every stage had, and lets a piece begin as soon as
its stage is free and what it needs is there. So the differences between the steps' lengths add up to the measured one.
Replicas are compared where there are several: a worker slower than its stage's other copies is a slow worker, a stage
slow in all of them an uneven stage. With one replica the two cannot be told apart and both count as the stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._compute_work import BACKWARD, FORWARD, INPUT, WEIGHT, Compute
from diagnose.analyses._dependency_graph import Times, lay_out, replay
from diagnose.analyses._pipeline_work import joined, links
from diagnose.analyses._schedule_names import Shape

SCENARIOS = ("no_transfer", "even_microbatches", "even_workers", "even_stages")


class Replays(NamedTuple):
    """Per pipe and scenario (rows x SCENARIOS): length of the step, and the balanced step's own figures."""

    length_ns: Times
    work_ns: Times  # per pipe: a stage's work in the balanced replay
    bubble_ns: Times  # per pipe: longest idle between a worker's own first and last work, balanced
    start: Times  # per piece, balanced, from the beginning of the pipe
    end: Times
    together: Flags  # per piece: runs under the piece before or after it


def replays(work: Compute, shape: Shape) -> Replays | None:
    """Replays of pipes that all have one shape; None where the order contradicts itself."""
    merged = _merged(work)
    group = np.cumsum(~merged) - 1
    before, after = _edges(work, shape, group)
    layout = lay_out(group, before, after)
    if layout is None:
        return None
    together = merged | np.append(merged[1:], False)
    durations = _scenarios(work, together)
    ends = replay(layout, durations)
    length = np.full((work.pipes_count, len(SCENARIOS)), -np.inf)
    np.maximum.at(length, work.pipe, ends)
    even_start, even_end = ends[:, -1] - durations[:, -1], ends[:, -1]
    own = np.where(merged, 0.0, durations[:, -1])
    workers = len(work.pipe_of)
    busy, first, last = np.zeros(workers), np.full(workers, np.inf), np.full(workers, -np.inf)
    np.add.at(busy, work.worker, own)
    np.minimum.at(first, work.worker, even_start)
    np.maximum.at(last, work.worker, even_end)
    bubble, total = np.zeros(work.pipes_count), np.zeros(work.pipes_count)
    present = np.isfinite(first)
    np.maximum.at(bubble, work.pipe_of[present], (last - first - busy)[present])
    np.add.at(total, work.pipe_of, busy)
    counts = np.bincount(work.pipe_of[present], minlength=work.pipes_count)
    return Replays(length, total / np.maximum(counts, 1), bubble, even_start, even_end, together)


def _merged(work: Compute) -> Flags:
    """Pieces that run under the one before them on their worker (more than half of the shorter one)."""
    if not len(work.start):
        return np.zeros(0, bool)
    overlap = np.minimum(work.end[:-1], work.end[1:]) - work.start[1:]
    shorter = np.minimum(work.end[:-1] - work.start[:-1], work.end[1:] - work.start[1:])
    under = (work.worker[1:] == work.worker[:-1]) & (2 * overlap > shorter)
    under[1:] &= ~under[:-1]
    return np.append(False, under)


def _edges(work: Compute, shape: Shape, group: Ints) -> tuple[Ints, Ints]:
    """Pairs (piece, piece that waits for it): order on the worker, forward along the path, backward against it."""
    rows = np.arange(len(work.start))
    same = work.worker[1:] == work.worker[:-1]
    apart = group[1:] != group[:-1]
    pairs = [(rows[:-1][same & apart], rows[1:][same & apart])]
    skip = (work.worker[2:] == work.worker[:-2]) & (group[2:] != group[:-2])
    pairs.append((rows[:-2][skip], rows[2:][skip]))
    way = work.chunk if shape.both_ways else np.zeros_like(work.chunk)
    flow = _code(work.pipe, way, work.microbatch)
    forward = np.flatnonzero(work.phase == FORWARD)
    by_time = forward[np.lexsort((work.start[forward], flow[forward]))]
    pairs.append(links(flow[by_time], by_time))
    at = _code(flow, work.stage, work.chunk)
    backward = np.flatnonzero(np.isin(work.phase, (BACKWARD, INPUT)))
    its_forward, its_backward = joined(at[forward], forward, at[backward], backward)
    pairs.append((its_forward, its_backward))
    back = its_backward[np.lexsort((-work.start[its_forward], flow[its_backward]))]
    pairs.append(links(flow[back], back))
    weight = np.flatnonzero(work.phase == WEIGHT)
    pairs.append(joined(at[backward], backward, at[weight], weight))
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def _code(*columns: Ints) -> Ints:
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)


def _scenarios(work: Compute, together: Flags) -> Times:
    """Durations (pieces x SCENARIOS)."""
    measured = (work.end - work.start).astype(np.float64)
    kind = 2 * work.phase + together
    cell = _code(work.worker, work.chunk, kind)
    even = _means(cell, measured)[cell]
    workers = _lower_median(
        _code(work.step_of[work.pipe], work.stage, work.chunk, kind), work.replica_of[work.pipe], even
    )
    balanced = _code(work.step_of[work.pipe], kind)
    return np.column_stack([measured, even, workers, _means(balanced, workers)[balanced]])


def _means(code: Ints, values: Times) -> Times:
    return np.bincount(code, values) / np.maximum(np.bincount(code), 1)


def _lower_median(code: Ints, replica: Ints, values: Times) -> Times:
    """Per code the lower median over replicas of their (constant) value."""
    pairs, first, inverse = np.unique(np.column_stack([code, replica]), axis=0, return_index=True, return_inverse=True)
    owner, value = pairs[:, 0], values[first]
    order = np.lexsort((value, owner))
    start = np.searchsorted(owner[order], np.arange(int(owner.max(initial=-1)) + 1))
    count = np.bincount(owner)
    return np.asarray(value[order][start + (count - 1) // 2][owner][inverse.reshape(-1)], np.float64)
