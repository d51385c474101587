"""Ranks that meet in collectives, as one graph to replay: own work of each rank, and calls that start together.

A matched call that nobody can leave early starts on all its ranks when the last of them is ready, and takes each rank
its own time after the latest start; any other call takes its recorded duration. That a rank begins its first step later
than others, on the reference's clock, is part of its own time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._arrivals import Arrival
from diagnose.analyses._columns import Flags, Ints, codes, integers
from diagnose.analyses._dependency_graph import Layout, Times, lay_out
from diagnose.analyses._partition import partition
from diagnose.analyses._pipeline_places import Places
from diagnose.analyses._rank_timeline import OWN_PARTS, Timeline, returned, timeline_of


class Ranks(NamedTuple):
    """Replay of several ranks. Operations are ordered by rank; pieces and calls are told apart by `call`."""

    layout: Layout
    duration: Times  # ns
    rank: Ints  # index in `ranks`, per operation
    call: Ints  # row of `calls_on_device`; -1: own work, or the lag before a call
    parts: Times  # (pieces of own work in order, OWN_PARTS) ns
    interval: Ints  # calls of the rank that started before this piece ended; -1 for calls and lags
    step: Ints  # step of the rank, counted from 0, that holds the piece's begin; -1 for calls and lags
    ranks: Ints
    alike: Ints  # class of each rank: same operations in the same order
    measured_ns: int
    steps_count: int


def ranks_of(  # noqa: PLR0913, PLR0917  (one parameter per table)
    calls: pa.Table, arrival: Arrival, spans: pa.Table, steps: pa.Table, kernels: pa.Table, idle: pa.Table,
    collectives: pa.Table, places: Places,
) -> Ranks | str:  # fmt: skip
    """The graph of all ranks whose clocks can be compared, or why there is none. `places`: stages of a pipeline."""
    shift = arrival.start_ns - integers(calls["ts_ns"])
    ranks = np.array(sorted(pc.unique(spans["rank"]).to_pylist()), np.int64)
    owner, stream = integers(calls["rank"]), integers(calls["stream"], -1)
    begin = integers(calls["ts_ns"])
    end = begin + integers(calls["dur_ns"])
    met = (stream < 0) & arrival.comparable & (arrival.synchronising | arrival.paired)
    found: list[_Own] = []
    for rank in ranks.tolist():
        begins, last = _window(rank, spans, steps, kernels)
        window = int(begins[0]), last
        rows = np.flatnonzero((owner == rank) & (arrival.match >= 0))
        if not len(rows):
            return f"rank {rank} shares no call with another"
        mine = [t.filter(pc.equal(t["rank"], rank)) for t in (kernels, idle, collectives)]
        inside = np.flatnonzero((owner == rank) & (begin >= window[0]) & (end <= window[1]))
        inside = inside[np.argsort(begin[inside], kind="stable")]
        sets = partition(*mine)
        came = (arrival.last_ns - arrival.error_ns - shift)[inside]
        until = np.where(met[inside], returned(end[inside], np.maximum(came, begin[inside]), sets), end[inside])
        line = timeline_of(begin[inside], until, stream[inside], window, sets)
        offset = int(shift[rows[len(rows) // 2]])
        step = np.maximum(np.searchsorted(begins, line.piece[:, 0], "right") - 1, 0)
        found.append(_Own(line, inside, until + shift[inside], step, window[0] + offset, window[1] + offset))
    counts = integers(spans["rank"])
    steps_count = int(np.unique(counts, return_counts=True)[1].max())
    stage = np.array([places.get(rank, (0, 0))[0] for rank in ranks.tolist()])
    return _joined(found, ranks, stage, calls, arrival, steps_count)


class _Own(NamedTuple):
    """One rank: its timeline, its rows of `calls_on_device`, when it went on after each, step of each piece, begin and
    end; times on the common clock."""

    line: Timeline
    rows: Ints
    until_ns: Ints
    step: Ints
    begin: int
    end: int


def _window(rank: int, spans: pa.Table, steps: pa.Table, kernels: pa.Table) -> tuple[Ints, int]:
    """Starts of the rank's analysed steps and the end of the last; without steps, of its work."""
    own = spans.filter(pc.equal(spans["rank"], rank))
    mine = steps.filter(pc.and_(pc.equal(steps["rank"], rank), pc.is_in(steps["step"], own["step"].combine_chunks())))
    if own["step"].null_count or not mine.num_rows:
        mine = kernels.filter(pc.equal(kernels["rank"], rank))
        start = integers(mine["ts_ns"])
        return start.min(keepdims=True), int((start + integers(mine["dur_ns"])).max())
    start = integers(mine["ts_ns"])
    return np.sort(start), int((start + integers(mine["dur_ns"])).max())


def _joined(
    found: list[_Own], ranks: Ints, stage: Ints, calls: pa.Table, arrival: Arrival, steps_count: int
) -> Ranks | str:
    sizes = [len(own.line.piece) + 2 * len(own.rows) for own in found]
    base = np.append(0, np.cumsum(sizes))
    shared = arrival.comparable & (arrival.synchronising | arrival.paired)
    names = ("before", "after", "call", "interval", "step")
    columns: dict[str, list[Ints]] = {name: [] for name in names}
    durations, parts = [], []
    for own, at in zip(found, base[:-1].tolist(), strict=True):
        line, rows = own.line, own.rows
        absent = np.full(len(rows), -1)
        columns["before"].append(line.before + at)
        columns["after"].append(line.after + at)
        columns["call"].append(np.concatenate([np.full(len(line.piece), -1), absent, rows]))
        columns["interval"].append(np.concatenate([line.interval, absent, absent]))
        columns["step"].append(np.concatenate([own.step, absent, absent]))
        length = own.until_ns - arrival.start_ns[rows]
        moving = np.clip(own.until_ns - arrival.last_ns[rows], 0, length)
        took = np.where(shared[rows], moving, length)
        durations.append(np.concatenate([line.parts.sum(axis=1), line.lag_ns, took]).astype(float))
        parts.append(line.parts.astype(float))
    before, after, call, interval, step = (np.concatenate(columns[name]) for name in names)
    start_of = _starts(call, arrival, shared)
    layout = lay_out(start_of, before, after)
    if layout is None:
        return "ranks meet in different orders"
    duration, part = np.concatenate(durations), np.concatenate(parts)
    first = min(own.begin for own in found)
    opening = np.append(0, np.cumsum([len(own.line.piece) for own in found]))[:-1]
    late = [float(own.begin - first) for own in found]
    duration[base[:-1]], part[opening, OWN_PARTS.index("begin")] = late, late
    return Ranks(
        layout, duration, np.repeat(np.arange(len(ranks)), sizes), call, part, interval, step, ranks,
        _alike(found, stage, calls), max(own.end for own in found) - first, steps_count,
    )  # fmt: skip


def _starts(call: Ints, arrival: Arrival, shared: Flags) -> Ints:
    """Calls of one match share a start; everything else has its own."""
    match = np.where(call >= 0, np.where(shared[call], arrival.match[call], -1), -1)
    key = np.where(match >= 0, match, int(match.max(initial=0)) + 1 + np.arange(len(call)))
    return np.asarray(np.unique(key, return_inverse=True)[1], np.int64)


def _alike(found: list[_Own], stage: Ints, calls: pa.Table) -> Ints:
    """Class of each rank by its stage and the operations and dimensions of its calls, in order."""
    said = codes(calls["op"]) * 64 + codes(calls["dim"])
    seen: dict[tuple[int, bytes], int] = {}
    keys = [(s, said[own.rows].tobytes()) for s, own in zip(stage.tolist(), found, strict=True)]
    return np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)
