"""Durations that cannot be: work that runs far over its successor on the same stream, which is serial.

A duration is impossible when the piece runs well over its successor (past its end, or for half of its own length) and
also overruns its step or exceeds ten times the median of its name. Small overlaps are real (programmatic dependent
launch), and branches of a graph may share a stream's name, so those are judged by the median alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import Flags, Ints, integers, lookup, take
from diagnose.analyses._work import NEVER, Work, next_on_lane, serial_ends

MEDIANS = 10
"""A duration above so many medians of its name is not believed where it also runs over its successor."""
ROUNDING_NS = 2_000
"""Old recordings hold whole microseconds: overlaps up to this are rounding."""


def impossible(work: Work, name: Ints, step: Ints, steps: pa.Table, graph: Flags) -> tuple[Flags, Ints]:
    """(which durations are impossible, ns from each start to its successor's).

    `name` and `step` are codes per piece, `steps` the rank's steps, `graph` flags pieces that a graph launched.
    """
    following = next_on_lane(work)
    length = work.end - work.start
    next_start, next_end = take(work.start, following, NEVER), take(work.end, following, NEVER)
    overlap = np.where(following >= 0, work.end - next_start, 0)
    runs_over = (overlap > 0) & ((work.end > next_end) | (2 * overlap >= length))
    if not runs_over.any():
        return runs_over, length
    beyond = work.end > _step_end(work, step, steps)
    beyond &= (overlap > ROUNDING_NS) & ~graph  # branches of a graph may share a stream's name
    return runs_over & (beyond | (length > MEDIANS * _median_of_name(name, length))), next_start - work.start


def _step_end(work: Work, step: Ints, steps: pa.Table) -> Ints:
    """End of each piece's step; of the recording where it has none."""
    steps = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("step")
    place = lookup(integers(steps["step"]), step)
    ends = integers(steps["ts_ns"]) + integers(steps["dur_ns"])
    return take(ends, place, int(serial_ends(work).max()))


def _median_of_name(name: Ints, length: Ints) -> Ints:
    """Lower median of the durations of each piece's name."""
    order = np.lexsort((length, name))
    _, first, inverse, count = np.unique(name[order], return_index=True, return_inverse=True, return_counts=True)
    result = np.empty(len(name), np.int64)
    result[order] = length[order][first + (count - 1) // 2][inverse]
    return result
