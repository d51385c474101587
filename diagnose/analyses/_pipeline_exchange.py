"""Which send carries which computation's result to which receive, and what that means for the order of a pipeline.

Sends and receives carry no micro-batch: within a worker and a direction, the n-th belongs to the n-th computation that
has a neighbour to exchange with. Recorders also note calls at the ends of the pipeline that moved nothing; they are
kept as operations of their own, with no partner. Where no exchange was recorded at all, every computation waits for
that of the same micro-batch on the stage before, and the smallest lag seen on a link is its transfer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._dependency_graph import Times
from diagnose.analyses._pipeline_work import CODE, Work, counted, joined, links

DIRECTIONS = (("forward", ("forward",)), ("backward", ("backward", "backward_input")))
TOLERANCE_NS = 50_000
"""Clocks of recorded timelines agree about this well (EPS of the published traces)."""
MOST_CONTRADICTED = 0.02


class Extra(NamedTuple):
    """Transfers that were not recorded: one per edge between stages."""

    duration: Times
    phase: Ints
    source: Ints  # row of the computation whose result moves
    link: Ints


class Exchange(NamedTuple):
    """Edges between rows of the work (extra transfers count on from its end), and who shares a start."""

    before: Ints
    after: Ints
    paired: Ints
    pair: Ints
    link: Ints  # per row of the work; -1
    extra: Extra


class _Side(NamedTuple):
    """Rows of one direction and kind with the computation each belongs to (-1: none)."""

    rows: Ints
    compute: Ints
    real: Flags


def exchange_of(work: Work) -> Exchange | str:
    """Edges and pairs, or why they cannot be told."""
    recorded = work.rows("send_forward", "recv_forward", "send_backward", "recv_backward")
    return _recorded(work) if len(recorded) else _implied(work)


def place_in_model(work: Work, folded: bool = False) -> Ints:
    """Place of each row's chunk in the model. `folded`: every second chunk runs back through the stages (V)."""
    back = folded & (work.chunk % 2 == 1)
    return work.chunk * work.stages_count + np.where(back, work.stages_count - 1 - work.stage, work.stage)


def _recorded(work: Work) -> Exchange | str:
    count = len(work.start)
    before, after, paired, pair = [], [], [], []
    link = np.full(count, -1)
    for number, (direction, phases) in enumerate(DIRECTIONS):
        computes = work.rows(*phases)
        for receiving in (False, True):
            side = _matched(work, computes, direction, receiving)
            if isinstance(side, str):
                return side
            known = side.compute >= 0
            rows, own = side.rows[known], side.compute[known]
            before.append(rows if receiving else own)
            after.append(own if receiving else rows)
            if receiving:  # posted after the same direction's computation before
                held, holder = links(work.place[computes], computes)
                earlier, later = joined(holder, held, own, rows)
                before.append(earlier)
                after.append(later)
            real = side.rows[side.real]
            step = 1 if direction == "forward" else -1
            sender = (work.stage[real] - (step if receiving else 0)) % work.stages_count
            base = work.step[real] * (int(work.lane.max()) + 1) + work.lane[real]
            kind = sender * 2 + number
            paired.append(real)
            pair.append((base * 2 * work.stages_count + kind) * (count + 1) + counted(work.place[real]))
            link[real] = kind
    edges = (np.concatenate(before), np.concatenate(after), np.concatenate(paired), np.concatenate(pair))
    none = np.zeros(0, np.int64)
    return Exchange(*edges, link, Extra(np.zeros(0), none, none, none))


def _matched(work: Work, computes: Ints, direction: str, receiving: bool) -> _Side | str:
    """The computation of each send or receive of one direction, by order."""
    rows = work.rows(f"{'recv' if receiving else 'send'}_{direction}")
    place = place_in_model(work)
    ends = 0 if receiving == (direction == "forward") else int(place.max(initial=0))
    needs = place[computes] != ends  # has a neighbour to exchange with
    most = int(work.place.max(initial=0)) + 1
    n_all = np.bincount(work.place[computes], minlength=most)
    n_need = np.bincount(work.place[computes[needs]], minlength=most)
    usable = _launched(work, rows, computes, receiving, most)
    of = work.place[rows]
    seen = np.bincount(of[usable], minlength=most)
    by_need = seen == n_need
    by_all = ~by_need & (seen == n_all)
    skipping = ~by_need & ~by_all & (seen + 1 == n_all) & receiving
    if not (by_need | by_all | skipping | (seen == 0)).all():
        at = int(np.flatnonzero(~(by_need | by_all | skipping | (seen == 0)))[0])
        kind = f"{direction} {'receives' if receiving else 'sends'}"
        return f"{int(seen[at])} {kind} for {int(n_need[at])} computations that need one"
    index = np.full(len(rows), -1)
    index[usable] = counted(of[usable]) + skipping[of[usable]]
    wide = len(work.start) + 1
    target = np.full(len(rows), -1)
    for chosen, mode in ((computes[needs], by_need), (computes, by_all | skipping)):
        key = work.place[chosen] * wide + counted(work.place[chosen])
        mine = np.flatnonzero(usable & mode[of])
        found, at_rows = joined(key, chosen, of[mine] * wide + index[mine], mine)
        target[at_rows] = found
    real = (target >= 0) & (place[np.maximum(target, 0)] != ends)
    return _Side(rows, target, real)


def _launched(work: Work, rows: Ints, computes: Ints, receiving: bool, most: int) -> Flags:
    """Without the calls at the two ends of a step that moved nothing."""
    of = work.place[rows]
    if receiving:
        last = np.full(most, np.iinfo(np.int64).min)
        np.maximum.at(last, work.place[computes], work.start[computes])
        return np.asarray(work.start[rows] <= last[of] + TOLERANCE_NS)
    first = np.full(most, np.iinfo(np.int64).max)
    np.minimum.at(first, work.place[computes], work.end[computes])
    return np.asarray(work.end[rows] >= first[of] - TOLERANCE_NS)


def _implied(work: Work) -> Exchange | str:
    """Edges between neighbouring stages from micro-batch numbers, for the placement that the times contradict least."""
    best: tuple[float, list[tuple[Ints, Ints, int]]] | None = None
    for folded in (False, True) if work.chunk.max(initial=0) else (False,):
        found = _between_stages(work, place_in_model(work, folded))
        parent = np.concatenate([p for p, _, _ in found])
        child = np.concatenate([c for _, c, _ in found])
        wrong = float(np.mean(work.start[child] < work.end[parent] - TOLERANCE_NS)) if len(parent) else 0.0
        if best is None or wrong < best[0]:
            best = wrong, found
    assert best is not None
    if best[0] > MOST_CONTRADICTED:
        return f"{best[0]:.0%} of computations began before their input was computed: clocks or micro-batches differ"
    edges = [(p, c, n) for p, c, n in best[1] if len(p)]
    none = np.zeros(0, np.int64)
    if not edges:
        return Exchange(none, none, none, none, np.full(len(work.start), -1), Extra(np.zeros(0), none, none, none))
    parent, child = np.concatenate([p for p, _, _ in edges]), np.concatenate([c for _, c, _ in edges])
    number = np.concatenate([np.full(len(p), n) for p, _, n in edges])
    link = work.stage[parent] * 2 + number
    own = np.unique(link * (int(work.lane.max()) + 1) + work.lane[parent], return_inverse=True)[1]
    least = np.full(int(own.max()) + 1, np.inf)
    np.minimum.at(least, own, (work.start[child] - work.end[parent]).astype(float))
    phase = np.where(number == 0, CODE["send_forward"], CODE["send_backward"])
    moved = len(work.start) + np.arange(len(parent))
    extra = Extra(np.maximum(least, 0.0)[own], phase, parent, link)
    return Exchange(np.append(parent, moved), np.append(moved, child), none, none, np.full(len(work.start), -1), extra)


def _between_stages(work: Work, place: Ints) -> list[tuple[Ints, Ints, int]]:
    """(rows, rows that wait for them, index in DIRECTIONS) per direction, by micro-batch and place in the model."""
    found = []
    for number, (_, phases) in enumerate(DIRECTIONS):
        rows = work.rows(*phases)
        micro = work.microbatch[rows]
        unnumbered = counted(work.place[rows] * (int(work.chunk.max(initial=0)) + 1) + work.chunk[rows])
        micro = np.where(micro >= 0, micro, unnumbered)
        wide, deep = int(micro.max(initial=0)) + 1, int(place.max(initial=0)) + 3
        base = (work.step[rows] * (int(work.lane.max(initial=0)) + 1) + work.lane[rows]) * wide + micro
        own = base * deep + place[rows] + 1
        giver = own - (1 if number == 0 else -1)
        distinct = counted(own) == 0
        parent, child = joined(own[distinct], rows[distinct], giver, rows)
        found.append((parent, child, number))
    return found
