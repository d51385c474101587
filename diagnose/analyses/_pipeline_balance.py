"""Fixes of a pipeline job that keep everything but their object: stages or micro-batches made equal, workers made like
the other copies of their stage, boundaries between stages made like the other boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._dependency_graph import Times
from diagnose.analyses._pipeline_graph import SERIAL, Graph
from diagnose.analyses._pipeline_work import CODE, NO_RANK, Work
from diagnose.schema.pipelines import PHASES

NOISE_RATIO = 1.02
"""Computation over that of the others of its stage, from which fixing a worker is replayed: below is noise."""
SLOW_WORKER_RATIO = 1.1
"""The same, from which a worker is among the slow ones, which are also fixed together; stragglers of public reports are
10 % slow."""
SLOW_LINK_RATIO = 1.25
"""Transfer over that of the other boundaries, from which fixing a link is replayed."""
_MOST_WORKERS = 16

Row = dict[str, Any]


class Scenario(NamedTuple):
    """A row to be and the durations it replays: with its object fixed, and with all but its object ideal. Neither: its
    object is as it should be, and nothing is gained."""

    row: Row
    fixed: Times | None
    alone: Times | None


def balanced(graph: Graph, work: Work) -> Iterator[Scenario]:
    """Stages made equal, micro-batches made equal, workers made like their stage, boundaries like the others."""
    computes = np.isin(graph.phase, [CODE[name] for name in SERIAL])
    typical = _typical(graph, computes)
    equal = np.where(computes, graph.duration * typical.to_mean, graph.duration)
    yield Scenario({"fixed": "stage_balance"}, equal, None)
    yield Scenario({"fixed": "microbatch_balance"}, np.where(computes, typical.own_mean, graph.duration), None)
    yield from _workers(graph, work, computes, typical.to_others)
    yield from _links(graph, work)


def _workers(graph: Graph, work: Work, computes: Flags, to_others: Times) -> Iterator[Scenario]:
    """The slowest workers against their stage's other copies, each alone, and those that are clearly slow together."""
    known = computes & np.isfinite(to_others)
    like_others = np.where(known, graph.duration * to_others, graph.duration)
    cells = int(graph.cell.max()) + 1
    own = np.bincount(graph.cell[known], graph.duration[known], cells)
    usual = np.bincount(graph.cell[known], like_others[known], cells)
    slow = np.flatnonzero(own > NOISE_RATIO * usual)
    slow = slow[np.argsort((usual - own)[slow], kind="stable")][:_MOST_WORKERS]
    for cell in slow.tolist():
        mine = graph.cell == cell
        yield Scenario({"fixed": "worker", **who(graph, work, mine)}, np.where(mine, like_others, graph.duration), None)
    clearly = np.isin(graph.cell, slow[own[slow] > SLOW_WORKER_RATIO * usual[slow]])
    if clearly.any():
        row: Row = {"fixed": "slow_workers", "ranks": who(graph, work, clearly)["ranks"]}
        yield Scenario(row, np.where(clearly, like_others, graph.duration), None)


class _Typical(NamedTuple):
    """Factors per operation that computes; 1 or nan elsewhere."""

    to_mean: Times  # of the stage to the mean of the stages
    to_others: Times  # of the worker to the median of the others of its stage; nan where it has no other
    own_mean: Times  # mean duration of this phase and chunk on this worker


def _typical(graph: Graph, computes: Flags) -> _Typical:
    rows = np.flatnonzero(computes)
    stages, cells, chunks = (int(c.max()) + 1 for c in (graph.stage, graph.cell, graph.chunk))
    phase, own = graph.phase[rows], graph.duration[rows]
    per = (phase * chunks + graph.chunk[rows]) * cells + graph.cell[rows]
    total, count = np.bincount(per, own), np.bincount(per)
    mean = total / np.maximum(count, 1)
    sums = np.bincount(phase * cells + graph.cell[rows], own, len(PHASES) * cells).reshape(len(PHASES), cells)
    sums[sums == 0] = np.nan
    stage_of = np.zeros(cells, np.int64)
    stage_of[graph.cell] = graph.stage
    of_stage = np.full((len(PHASES), stages), np.nan)
    others = np.full((len(PHASES), cells), np.nan)
    for stage in range(stages):
        mine = np.flatnonzero(stage_of == stage)
        known = ~np.isnan(sums[:, mine]).all(axis=1)
        if len(mine):
            of_stage[known, stage] = np.nanmedian(sums[known][:, mine], axis=1)
        for cell in mine.tolist() if len(mine) > 1 else []:
            rest = mine[mine != cell]
            seen = known & ~np.isnan(sums[:, rest]).all(axis=1)
            others[seen, cell] = np.nanmedian(sums[seen][:, rest], axis=1)
    level = np.array([np.nanmean(v) if np.isfinite(v).any() else np.nan for v in of_stage])
    full = np.full(len(graph.duration), 1.0)
    to_mean, to_others, own_mean = full.copy(), full * np.nan, full.copy()
    to_mean[rows] = np.nan_to_num((level[:, None] / of_stage)[phase, graph.stage[rows]], nan=1.0)
    to_others[rows] = (others / sums)[phase, graph.cell[rows]]
    own_mean[rows] = mean[per]
    return _Typical(to_mean, to_others, own_mean)


def _links(graph: Graph, work: Work) -> Iterator[Scenario]:
    """Each boundary between two stages; where its transfers take longer than elsewhere, on some or all replicas, these
    made like the others."""
    moving = graph.link >= 0
    stages, lanes = work.stages_count, int(graph.lane.max()) + 1
    # the boundary after this stage: forward from it, backward to it
    low = np.where(graph.link % 2 == 0, graph.link // 2, (graph.link // 2 - 1) % stages)
    present, index = np.unique((low * lanes + graph.lane)[moving], return_inverse=True)
    took = graph.duration[moving]
    order = np.lexsort((took, index))
    first = np.searchsorted(index[order], np.arange(len(present)))
    middle = took[order][first + (np.bincount(index, minlength=len(present)) - 1) // 2] if len(present) else took
    boundary = present // lanes
    for one in np.unique(boundary).tolist() if len(np.unique(boundary)) > 2 else []:
        usual = float(np.median(middle[boundary != one]))
        slow = (boundary == one) & (middle > SLOW_LINK_RATIO * usual)
        chosen = slow if slow.any() else boundary == one
        mine = np.zeros(len(moving), bool)
        mine[moving] = chosen[index]
        row = {"fixed": "link", **who(graph, work, mine), "stage": one, "usual_ns": round(usual)}
        row["own_ns"] = round(float(np.median(middle[chosen])))
        yield Scenario(
            row, np.where(mine, np.minimum(graph.duration, usual), graph.duration) if slow.any() else None, None
        )


def who(graph: Graph, work: Work, chosen: Ints | Flags) -> Row:
    """Stage, replica and ranks of some operations, where they are one."""
    rows = chosen if chosen.dtype != bool else np.flatnonzero(chosen[: len(work.rank)])
    one: Row = {}
    for name, column in (("stage", work.stage), ("replica", work.replica), ("rank", work.rank), ("cell", work.cell)):
        values = np.unique(column[rows])
        if len(values) == 1 and values[0] != (NO_RANK if name == "rank" else -1):
            one[name] = int(values[0])
    ranks = np.unique(work.rank[rows])
    return {**one, "ranks": ranks[ranks != NO_RANK].tolist()}
