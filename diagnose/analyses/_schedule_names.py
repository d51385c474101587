"""Which pipeline schedule an order of work is: told from the order alone, never from times alone.

`gpipe`: every stage runs all forwards first. `1f1b`: forward and backward in turn after a warm-up that is one forward
long on the last stage. `interleaved`: the same with several chunks per stage that follow each other around the stages.
`zb1p`, `zb2p`: weight gradients apart from input gradients, one chunk; the first stage begins with p or with about 2p
forwards. `zbv`: two chunks, down the stages and up again. `dualpipe`: micro-batches enter at both ends. Anything else
is `unknown`: interleaved zero bubble, V-Half, V-Min, looped variants and a program of one's own.
With one micro-batch GPipe and 1F1B are the same order; it is called 1f1b. A pipeline of which stages are missing is
`unknown`, too: fewer than its groups have, or a last stage that waits before its first backward.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Ints
from diagnose.analyses._compute_work import FORWARD, INPUT, WEIGHT, Compute

UNKNOWN = "unknown"


class Shape(NamedTuple):
    """What the work of one pipe is like."""

    schedule: str
    stages: int
    microbatches: int
    chunks: int
    both_ways: bool
    """Micro-batches of different chunks are different ones and enter at different ends."""
    complete: bool
    """Every stage is there with every micro-batch; else nothing may be said of the whole pipeline."""


def shape_of(work: Compute, expected_stages: int = 0) -> Shape:
    """Schedule and numbers of one pipe (the pieces of one step and replica, in order).

    `expected_stages`: how many the job has, where something says so.
    """
    stages, chunks = len(np.unique(work.stage)), len(np.unique(work.chunk))
    forward = work.take(work.phase == FORWARD)
    _, each = np.unique(np.column_stack([forward.stage, forward.chunk]), axis=0, return_counts=True)
    if len(each) != stages * chunks or (each != each[0]).any():
        return Shape(UNKNOWN, stages, len(forward.start) // (stages * chunks), chunks, both_ways=False, complete=False)
    directions = [_goes_down(forward.take(forward.chunk == chunk)) for chunk in np.unique(forward.chunk)]
    both_ways = directions == [True, False] and _meets(forward)
    microbatches = len(forward.start) // (stages * (1 if both_ways else chunks))
    complete = 1 < stages >= expected_stages and bool((work.microbatch >= 0).all())
    complete = complete and (not all(directions) or _turns_around(work))
    schedule = _name(work, stages, microbatches, directions, both_ways) if complete else UNKNOWN
    return Shape(schedule, stages, microbatches, chunks, both_ways, complete)


def _turns_around(work: Compute) -> bool:
    """Whether the last stage begins its first backward when it is free; where a later stage is missing, it waits."""
    last = work.take(work.stage == work.stage.max())
    forward = last.phase == FORWARD
    if forward.all() or not forward.any():
        return bool(forward.any())
    first = int(np.argmax(~forward))
    typical = float(np.median((last.end - last.start)[forward]))
    return first > 0 and float(last.start[first] - last.end[:first].max()) <= typical


def _name(work: Compute, stages: int, microbatches: int, directions: list[bool], both_ways: bool) -> str:
    split = bool(np.isin(work.phase, (INPUT, WEIGHT)).any())
    orders = [_letters(work, stage) for stage in np.unique(work.stage)]
    ahead = [order.index("B") if "B" in order else len(order) for order in orders]
    if both_ways:
        return "dualpipe" if split and stages % 2 == 0 else UNKNOWN
    if not all(directions):
        return "zbv" if split and len(directions) == 2 and ahead[0] >= min(2 * stages, 2 * microbatches) else UNKNOWN
    if split:
        if len(directions) > 1 or ahead[-1] != 1:
            return UNKNOWN
        return "zb1p" if ahead[0] <= stages else "zb2p" if ahead[0] >= min(2 * stages - 1, microbatches) else UNKNOWN
    if microbatches > 1 and all("BF" not in order for order in orders):
        return "gpipe"
    if not all(_in_turn(order) for order in orders):
        return UNKNOWN
    if len(directions) == 1:
        return "1f1b" if ahead[-1] == 1 else UNKNOWN
    return "interleaved" if ahead[-1] == (len(directions) - 1) * stages + 1 else UNKNOWN


def _letters(work: Compute, stage: int) -> str:
    """F for a forward, B for a backward or an input gradient, in order."""
    mine = work.take((work.stage == stage) & (work.phase != WEIGHT))
    return "".join(np.where(mine.phase == FORWARD, "F", "B"))


def _in_turn(order: str) -> bool:
    """Between the first backward and the last forward, they alternate."""
    middle = order[order.find("B") : order.rfind("F") + 1] if "B" in order else ""
    return "FF" not in middle and "BB" not in middle


def _goes_down(forward: Compute) -> bool:
    """Whether the first micro-batch passes the stages in ascending order."""
    first = np.array([forward.start[forward.stage == stage].min() for stage in np.unique(forward.stage)])
    return bool((np.diff(first) > 0).sum() * 2 >= len(first) - 1) if len(first) > 1 else True


def _meets(forward: Compute) -> bool:
    """Whether the second chunk begins on the last stage before the first chunk's work can have come there."""
    last: Ints = forward.stage == forward.stage.max()
    first_of = [forward.start[last & (forward.chunk == chunk)].min() for chunk in np.unique(forward.chunk)]
    return bool(first_of[1] < first_of[0])
