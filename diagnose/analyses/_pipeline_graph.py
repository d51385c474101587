"""What waits for what in a pipeline job, and how long each operation takes once it can start.

Dependencies: a computation starts after the one before it on its worker, in the order recorded, and after what it
receives; the first of a chunk also after the parameters were gathered. A send starts after what it sends was computed
and never delays a later computation. A receive is posted after the worker's own computation before the one it feeds,
in the same direction: not after the previous operation in program order. The tail of a worker: last computation, gc,
gradients of layer norms, of embeddings (first and last stage), reduce-scatter, clipping, optimizer.
Groups start together: gathers and reduce-scatters of one stage, embeddings of one replica, clipping of the whole job,
a send and its receive. A member then takes its own *transfer*: its end minus the latest start in the group. Raw
durations would count waiting again. Where no sends were recorded, the smallest lag of each link stands for the
transfer.

Method and wording of the dependencies: What-if analysis of stragglers, OSDI 2025, https://arxiv.org/abs/2505.05713.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.analyses._columns import Ints
from diagnose.analyses._dependency_graph import Layout, Times, lay_out
from diagnose.analyses._pipeline_exchange import Exchange, exchange_of
from diagnose.analyses._pipeline_work import CODE, Work, counted, joined, links
from diagnose.schema.pipelines import COMPUTE_PHASES

SERIAL = (*COMPUTE_PHASES, "loss")
"""What a worker does one after the other, in the order recorded."""
WORKING = (*SERIAL, "gc", "optimizer")
"""Phases whose duration is their own; that of all others is partly waiting."""
_TAIL = (
    "gc", "layernorm_sync", "embedding_sync", "gradient_sync", "late_gradient_sync", "gradient_clip", "optimizer",
)  # fmt: skip


class Graph(NamedTuple):
    """A job ready to replay. Operations are the rows of `work`, then transfers that were not recorded."""

    layout: Layout
    duration: Times  # ns, waiting taken out
    phase: Ints  # index in PHASES
    step: Ints
    stage: Ints  # of a transfer: the sender's
    lane: Ints
    cell: Ints
    chunk: Ints
    link: Ints  # sender's stage and direction of an exchange, one number per kind of link; -1: none


def graph_of(work: Work) -> Graph | str:
    """The graph, or why there is none."""
    exchange = exchange_of(work)
    if isinstance(exchange, str):
        return exchange
    before, after = _edges(work, exchange)
    start_of = _starts(work, exchange)
    layout = lay_out(start_of, before, after)
    if layout is None:
        return "the recorded order of operations contradicts itself"
    more, count = exchange.extra, len(work.start)
    latest = np.full(layout.starts_count, np.iinfo(np.int64).min)
    np.maximum.at(latest, start_of[:count], work.start)
    working = np.isin(work.phase, [CODE[name] for name in WORKING])
    moving = np.maximum(work.end - latest[start_of[:count]], 0)
    own = np.where(working, work.end - work.start, moving).astype(float)

    def extended(column: Ints) -> Ints:
        return np.append(column, column[more.source])

    return Graph(
        layout, np.append(own, more.duration), np.append(work.phase, more.phase), extended(work.step),
        extended(work.stage), extended(work.lane), extended(work.cell), extended(work.chunk),
        np.append(exchange.link, more.link),
    )  # fmt: skip


def _edges(work: Work, exchange: Exchange) -> tuple[Ints, Ints]:
    serial = work.rows(*SERIAL)
    pairs = [links(work.place[serial], serial), (exchange.before, exchange.after)]
    pairs += _parameters(work, serial) + _tail(work, serial)
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def _parameters(work: Work, serial: Ints) -> list[tuple[Ints, Ints]]:
    """Gathers one after the other; the first computation, and the first of each chunk, after its gather."""
    gathers = work.rows("parameter_sync")
    if not len(gathers):
        return []
    chunks = int(work.chunk.max()) + 1
    key = work.place * chunks + work.chunk
    last = _lasts(key[gathers], gathers)
    first = serial[counted(key[serial]) == 0]
    begin = serial[counted(work.place[serial]) == 0]
    opening = gathers[counted(work.place[gathers]) == 0]
    return [
        links(work.place[gathers], gathers),
        joined(key[last], last, key[first], first),
        joined(work.place[opening], opening, work.place[begin], begin),
    ]


def _tail(work: Work, serial: Ints) -> list[tuple[Ints, Ints]]:
    """From the computation that ends last through synchronisation to the optimizer."""
    order = np.lexsort((work.end[serial], work.place[serial]))
    last = _lasts(work.place[serial][order], serial[order])
    overlapped = len(work.rows("late_gradient_sync")) > 0
    names = [name for name in _TAIL if not (overlapped and name == "gradient_sync")]
    rows = work.rows(*names)
    position = np.full(len(CODE), -1)
    position[[CODE[name] for name in names]] = np.arange(len(names))
    rows = rows[np.lexsort((work.start[rows], position[work.phase[rows]], work.place[rows]))]
    first = rows[counted(work.place[rows]) == 0]
    pairs = [links(work.place[rows], rows), joined(work.place[last], last, work.place[first], first)]
    if overlapped:
        pairs += _reduced_early(work, rows)
    return pairs


def _reduced_early(work: Work, tail: Ints) -> list[tuple[Ints, Ints]]:
    """Reduce-scatters under the backward pass: each after its chunk's last backward, the tail after them."""
    reduces = work.rows("gradient_sync")
    backwards = work.rows("backward", "backward_input", "weight")
    key = work.place * (int(work.chunk.max()) + 1) + work.chunk
    last = _lasts(key[backwards], backwards)
    first = reduces[counted(key[reduces]) == 0]
    end = _lasts(work.place[reduces], reduces)
    after_gc = tail[work.phase[tail] != CODE["gc"]]
    opening = after_gc[counted(work.place[after_gc]) == 0]
    return [
        links(work.place[reduces], reduces),
        joined(key[last], last, key[first], first),
        joined(work.place[end], end, work.place[opening], opening),
    ]


def _lasts(code: Ints, rows: Ints) -> Ints:
    """Last row of each code, in the order given."""
    back = counted(code[::-1])[::-1]
    last: Ints = rows[back == 0]
    return last


def _starts(work: Work, exchange: Exchange) -> Ints:
    """Start of each operation, transfers that were not recorded included."""
    count = len(work.start)
    key = np.arange(count)
    numbers = work.number(key)
    for name, across in (
        ("parameter_sync", work.stage), ("gradient_sync", work.stage), ("late_gradient_sync", work.stage),
        ("embedding_sync", work.lane), ("gradient_clip", np.zeros(count, np.int64)),
    ):  # fmt: skip
        rows = work.rows(name)
        code = (work.step[rows] * (int(across.max(initial=0)) + 1) + across[rows]) * (count + 1) + numbers[rows]
        _share(key, rows, code)
    _share(key, exchange.paired, exchange.pair)
    full = np.append(key, count + np.arange(len(exchange.extra.duration)))
    return np.asarray(np.unique(full, return_inverse=True)[1], np.int64)


def _share(key: Ints, rows: Ints, code: Ints) -> None:
    """Give the rows of one code the key of the first of them."""
    if len(rows):
        _, first, index = np.unique(code, return_index=True, return_inverse=True)
        key[rows] = rows[first][index]
