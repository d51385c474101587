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
from itertools import chain

import numpy as np

from diagnose.analyses._columns import Flags
from diagnose.analyses._dependency_graph import Times, replays
from diagnose.analyses._pipeline_balance import Row, Scenario, balanced, who
from diagnose.analyses._pipeline_graph import WORKING, Graph
from diagnose.analyses._pipeline_work import Work
from diagnose.schema.pipelines import PHASES

SLOWEST_SHARE = 0.03
"""Of the workers, that M_W fixes."""
_POOLS = {"send_forward": "exchange_forward", "recv_forward": "exchange_forward",
          "send_backward": "exchange_backward", "recv_backward": "exchange_backward"}  # fmt: skip


def steps_ns(graph: Graph, durations: Iterable[Times]) -> Times:
    """Mean replayed step of each set of durations, ns; few of them are held at a time."""
    order = np.argsort(graph.step, kind="stable")
    first = np.searchsorted(graph.step[order], np.arange(int(graph.step.max()) + 1))
    ends = replays(graph.layout, durations)
    return np.concatenate([np.zeros(0), *(np.maximum.reduceat(e[order], first, axis=0).mean(axis=0) for e in ends)])


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
        for scenario in chain(_plain(graph, ideal, work), balanced(graph, work)):
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
        things += [({"fixed": "replica", **who(graph, work, graph.lane == n)}, graph.lane == n) for n in range(lanes)]
    for row, chosen in things:
        yield Scenario(row, np.where(chosen, ideal, graph.duration), np.where(chosen, graph.duration, ideal))


def _workers(graph: Graph, ideal: Times, work: Work, rows: list[Row], simulated: float, best: float) -> list[Row]:
    """S of every worker, and the slowest of them fixed together."""
    stage = {row["stage"]: row["slowdown_ratio"] for row in rows if row["fixed"] == "stage"}
    lane = [row["slowdown_ratio"] for row in rows if row["fixed"] == "replica"] or [math.inf]
    first = np.unique(graph.cell, return_index=True)[1]
    slow = np.array([min(stage[int(graph.stage[i])], lane[int(graph.lane[i])]) for i in first])
    known = {row["cell"]: row for row in rows if row["fixed"] == "worker"}
    for cell, at in enumerate(first.tolist()):
        if cell not in known:
            known[cell] = {"fixed": "worker", **who(graph, work, np.array([at])), "gain_ns": 0}
            rows.append(known[cell])
        known[cell]["slowdown_ratio"] = float(slow[cell])
    worst = np.argsort(-slow, kind="stable")[: math.ceil(SLOWEST_SHARE * len(slow))]
    chosen = np.isin(graph.cell, worst)
    (step,) = steps_ns(graph, [np.where(chosen, ideal, graph.duration)])
    row: Row = {"fixed": "slowest_workers", "ranks": who(graph, work, chosen)["ranks"]}
    return [_row(row, simulated, best, float(step), None)]
