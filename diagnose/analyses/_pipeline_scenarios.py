"""Replays of a pipeline job with one thing idealised at a time.

*Ideal* is one duration per kind of operation over all steps, micro-batches, stages and workers: the mean of
computation, optimizer and gc, the median of every transfer. T is the mean over steps of the replayed step, every
worker beginning at once; S = T / T(everything ideal). S of one thing idealises everything else. A worker's S is the
smaller of its stage's and its replica's. M_W: what fixing the slowest 3 % of workers wins, of what an ideal job would;
M_S: the same for the last stage. Above these, three fixes that keep everything but their object: stages made equal
(each stage's computation scaled to the mean of all stages), a worker made like the others of its stage, a link made
like the others.

Definitions: https://arxiv.org/abs/2505.05713, sections 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._dependency_graph import Times, replay
from diagnose.analyses._pipeline_graph import SERIAL, WORKING, Graph
from diagnose.analyses._pipeline_work import CODE, NO_RANK, Work
from diagnose.pipeline_tables import PHASES

SLOWEST_SHARE = 0.03
"""Of the workers, that M_W fixes."""
SLOW_WORKER_RATIO = 1.02
"""Computation over that of the others of its stage, from which fixing a worker is replayed: below is noise."""
SLOW_LINK_RATIO = 1.25
"""Transfer over that of the other boundaries, from which fixing a link is replayed."""
_MOST_WORKERS = 16
_MOST_CELLS = 4 << 20  # operations times scenarios held at once
_POOLS = {"send_forward": "exchange_forward", "recv_forward": "exchange_forward",
          "send_backward": "exchange_backward", "recv_backward": "exchange_backward"}  # fmt: skip

Row = dict[str, Any]


class Scenario(NamedTuple):
    """A row to be and the durations it replays: with its object fixed, and with all but its object ideal. Neither: its
    object is as it should be, and nothing is gained."""

    row: Row
    fixed: Times | None
    alone: Times | None


def steps_ns(graph: Graph, durations: Iterable[Times]) -> Times:
    """Mean replayed step of each set of durations, ns; few of them are held at a time."""
    order = np.argsort(graph.step, kind="stable")
    first = np.searchsorted(graph.step[order], np.arange(int(graph.step.max()) + 1))
    means = [np.zeros(0)]
    for some in batched(durations, max(1, _MOST_CELLS // len(graph.duration))):
        ends = replay(graph.layout, np.stack(some, axis=1))
        means.append(np.maximum.reduceat(ends[order], first, axis=0).mean(axis=0))
    return np.concatenate(means)


def batched(values: Iterable[Times], size: int) -> Iterator[list[Times]]:
    """Lists of up to `size` values."""
    left = iter(values)
    while some := list(islice(left, size)):
        yield some


def ideal_of(graph: Graph) -> Times:
    """One duration per kind of operation."""
    ideal = np.zeros(len(graph.duration))
    for number, name in enumerate(PHASES):
        rows = graph.phase == number
        if rows.any():
            ideal[rows] = (np.mean if name in WORKING else np.median)(graph.duration[rows])
    return ideal


def rows_of(graph: Graph, work: Work, measured_ns: float) -> list[Row]:
    """Rows of `what_if`; only the first, with what it rests on, where the replay is too far from the recording."""
    ideal = ideal_of(graph)
    simulated, best = steps_ns(graph, [graph.duration, ideal])
    row: Row = {"fixed": "nothing", "step_ns": round(simulated), "measured_ns": round(measured_ns)}
    row |= {"error_ratio": abs(simulated / measured_ns - 1), "steps_count": len(work.steps), "gain_ns": 0}
    rows = [row, _row({"fixed": "everything"}, simulated, best, best, simulated)]
    said: list[tuple[Row, str]] = []
    usual: list[Row] = []

    def durations() -> Iterator[Times]:
        for scenario in chain(_plain(graph, ideal, work), _balanced(graph, work)):
            usual.extend([{**scenario.row, "gain_ns": 0}] if scenario.fixed is scenario.alone is None else [])
            for kind, times in (("fixed", scenario.fixed), ("alone", scenario.alone)):
                if times is not None:
                    said.append((scenario.row, kind))
                    yield times

    times = steps_ns(graph, durations())
    found: dict[int, dict[str, float]] = {}
    for (one, kind), time in zip(said, times.tolist(), strict=True):
        found.setdefault(id(one), {})[kind] = time
    for one in {id(one): one for one, _ in said}.values():
        rows.append(_row(one, simulated, best, found[id(one)].get("fixed"), found[id(one)].get("alone")))
    rows += usual
    return rows + _workers(graph, ideal, work, rows, simulated, best)


def _row(row: Row, simulated: float, best: float, step: float | None, slow: float | None) -> Row:
    found = dict(row)
    if step is not None:
        found |= {"step_ns": round(step), "gain_ns": round(simulated) - round(step)}
        found["explained_ratio"] = (simulated - step) / (simulated - best) if simulated > best else None
    if slow is not None:
        found["slowdown_ratio"] = slow / best
    return found


def _plain(graph: Graph, ideal: Times, work: Work) -> Iterator[Scenario]:
    """Kinds of operation, stages and replicas made ideal, and left alone in an ideal job."""
    pool = np.array([_POOLS.get(name, name) for name in PHASES])[graph.phase]
    things: list[tuple[Row, Flags]] = [({"fixed": "phase", "phase": str(p)}, pool == p) for p in np.unique(pool)]
    things += [({"fixed": "stage", "stage": s}, graph.stage == s) for s in range(work.stages_count)]
    lanes = int(graph.lane.max()) + 1
    if lanes > 1:
        things += [({"fixed": "replica", **_who(graph, work, graph.lane == n)}, graph.lane == n) for n in range(lanes)]
    for row, chosen in things:
        yield Scenario(row, np.where(chosen, ideal, graph.duration), np.where(chosen, graph.duration, ideal))


def _balanced(graph: Graph, work: Work) -> Iterator[Scenario]:
    """Stages made equal, micro-batches made equal, each worker made like its stage, each link like the others."""
    computes = np.isin(graph.phase, [CODE[name] for name in SERIAL])
    typical = _typical(graph, computes)
    equal = np.where(computes, graph.duration * typical.to_mean, graph.duration)
    yield Scenario({"fixed": "stage_balance"}, equal, None)
    yield Scenario({"fixed": "microbatch_balance"}, np.where(computes, typical.own_mean, graph.duration), None)
    like_others = np.where(np.isfinite(typical.to_others), graph.duration * typical.to_others, graph.duration)
    cells = int(graph.cell.max()) + 1
    own = np.bincount(graph.cell[computes], graph.duration[computes], cells)
    usual = np.bincount(graph.cell[computes], like_others[computes], cells)
    slow = np.flatnonzero(own > SLOW_WORKER_RATIO * usual)
    for cell in slow[np.argsort((usual - own)[slow], kind="stable")][:_MOST_WORKERS].tolist():
        mine = graph.cell == cell
        yield Scenario(
            {"fixed": "worker", **_who(graph, work, mine)}, np.where(mine & computes, like_others, graph.duration), None
        )
    yield from _links(graph, work)


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
    """Each boundary between two stages whose transfers take longer than those of the others, made like them."""
    moving = graph.link >= 0
    if not moving.any():
        return
    stages, lanes = work.stages_count, int(graph.lane.max()) + 1
    # the boundary after this stage: forward from it, backward to it
    low = np.where(graph.link % 2 == 0, graph.link // 2, (graph.link // 2 - 1) % stages)
    key = low * lanes + graph.lane
    present = np.unique(key[moving])
    if len(present) < 3:
        return
    typical = {k: np.median(graph.duration[moving & (key == k)]) for k in present.tolist()}
    for k, value in typical.items():
        usual = float(np.median([v for other, v in typical.items() if other != k]))
        mine = moving & (key == k)
        row = {"fixed": "link", **_who(graph, work, mine), "stage": k // lanes}
        row |= {"usual_ns": round(usual), "own_ns": round(float(value))}
        slow = value > SLOW_LINK_RATIO * usual
        yield Scenario(row, np.where(mine, np.minimum(graph.duration, usual), graph.duration) if slow else None, None)


def _workers(graph: Graph, ideal: Times, work: Work, rows: list[Row], simulated: float, best: float) -> list[Row]:
    """S of every worker, and the slowest of them fixed together."""
    stage = {row["stage"]: row["slowdown_ratio"] for row in rows if row["fixed"] == "stage"}
    lane = [row["slowdown_ratio"] for row in rows if row["fixed"] == "replica"] or [math.inf]
    first = np.unique(graph.cell, return_index=True)[1]
    slow = np.array([min(stage[int(graph.stage[i])], lane[int(graph.lane[i])]) for i in first])
    known = {row["cell"]: row for row in rows if row["fixed"] == "worker"}
    for cell, at in enumerate(first.tolist()):
        if cell not in known:
            known[cell] = {"fixed": "worker", **_who(graph, work, np.array([at])), "gain_ns": 0}
            rows.append(known[cell])
        known[cell]["slowdown_ratio"] = float(slow[cell])
    worst = np.argsort(-slow, kind="stable")[: math.ceil(SLOWEST_SHARE * len(slow))]
    chosen = np.isin(graph.cell, worst)
    computes = np.isin(graph.phase, [CODE[name] for name in SERIAL])
    to_others = _typical(graph, computes).to_others
    alike = np.where(
        chosen & computes & (to_others < 1 / SLOW_WORKER_RATIO), graph.duration * to_others, graph.duration
    )
    step, like_others = steps_ns(graph, [np.where(chosen, ideal, graph.duration), alike])
    ranks = _who(graph, work, chosen)["ranks"]
    return [
        _row({"fixed": "slowest_workers", "ranks": ranks}, simulated, best, float(step), None),
        _row({"fixed": "slowest_like_others", "ranks": ranks}, simulated, best, float(like_others), None),
    ]


def _who(graph: Graph, work: Work, chosen: Ints | Flags) -> Row:
    """Stage, replica and ranks of some operations, where they are one."""
    rows = chosen if chosen.dtype != bool else np.flatnonzero(chosen[: len(work.rank)])
    one: Row = {}
    for name, column in (("stage", work.stage), ("replica", work.replica), ("rank", work.rank), ("cell", work.cell)):
        values = np.unique(column[rows])
        if len(values) == 1 and values[0] != (NO_RANK if name == "rank" else -1):
            one[name] = int(values[0])
    ranks = np.unique(work.rank[rows])
    return {**one, "ranks": ranks[ranks != NO_RANK].tolist()}
