"""Work of pipeline stages in traces as rows of the shape of `microbatches`: by marks, else by sends and receives.

A rank's stage is what its marks say (`PP:` numbers run over chunks: the lowest is its own, the next ones are its
chunks), else its place in its pipeline group. Which copy of the pipeline a rank is in follows from the groups, too.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, flags, integers
from diagnose.analyses._exchange_work import EXCHANGES, exchanged_work
from diagnose.analyses._mark_times import steps_of, work_times
from diagnose.analyses._pipeline_marks import UNKNOWN, Marks, find_marks
from diagnose.analyses._pipeline_places import Places, pipeline_places
from diagnose.analyses._pipeline_work import counted
from diagnose.schema import INGESTED

_PIPELINE_ONLY = 1
"""Marks of this trust and better are a pipeline's on every rank that sends and receives; others need its group."""


def work_in_traces(
    events: pa.Table,
    steps: pa.Table | None,
    kernels: pa.Table | None,
    groups: pa.Table | None,
    clocks: pa.Table | None,
    collectives: pa.Table | None,
) -> pa.Table | None:
    """Rows of `microbatches`; None where no trace tells of a pipeline."""
    places, moved = pipeline_places(groups), _offsets(clocks)
    marks = find_marks(events)
    piped = set(places) | _exchanging(collectives)
    found = None if marks is None else _marked(marks, events, steps, kernels, (places, piped), moved)
    if found is None and places and kernels is not None and collectives is not None:
        return exchanged_work(kernels, collectives, places, moved)
    return found


def _exchanging(collectives: pa.Table | None) -> set[int]:
    """Ranks with a send or receive."""
    if collectives is None or not collectives.num_rows:
        return set()
    wanted = np.array([op in EXCHANGES for op in dictionary(collectives["op"])])[codes(collectives["op"])]
    return set(integers(collectives["rank"])[wanted].tolist())


def _marked(
    marks: Marks,
    events: pa.Table,
    steps: pa.Table | None,
    kernels: pa.Table | None,
    pipeline: tuple[Places, set[int]],
    offsets: dict[int, int],
) -> pa.Table | None:
    places, piped = pipeline
    step = steps_of(marks, steps)
    start, end = work_times(marks, events, kernels)
    told = np.array(
        [s.stage != UNKNOWN or r in (piped if s.trust <= _PIPELINE_ONLY else places)
         for s, r in zip(marks.said, marks.rank.tolist(), strict=True)]
    )  # fmt: skip
    kept = np.flatnonzero((step != UNKNOWN) & (end > start) & told)
    if not len(kept):
        return None
    marks, step, start, end = marks.take(kept), step[kept], start[kept], end[kept]
    stage, chunk = _stages(marks, places)
    replica = np.array([places.get(rank, (UNKNOWN, UNKNOWN))[1] for rank in marks.rank.tolist()])
    moved = np.array([offsets.get(r, 0) for r in marks.rank.tolist()], np.int64)
    microbatch = np.array([s.microbatch for s in marks.said])
    phase = [s.phase for s in marks.said]
    key = np.column_stack([marks.rank, step, np.unique(phase, return_inverse=True)[1]])
    seq = counted(np.unique(key, axis=0, return_inverse=True)[1].reshape(-1))
    return INGESTED["microbatches"].build(
        {
            "rank": marks.rank, "step": step, "phase": phase, "ts_ns": start + moved, "dur_ns": end - start,
            "stage": _or_null(stage), "chunk": _or_null(chunk), "replica": _or_null(replica),
            "microbatch": _or_null(microbatch), "seq": seq,
            "source": ["marks"] * len(phase),
        }
    )  # fmt: skip


def _or_null(values: Ints) -> pa.Array:
    return pa.array(values, mask=values == UNKNOWN)


def _stages(marks: Marks, places: Places) -> tuple[Ints, Ints]:
    """(stage, chunk) of each mark."""
    said = np.array([s.stage for s in marks.said])
    chunk = np.array([s.chunk for s in marks.said])
    stage = np.array([places.get(rank, (UNKNOWN, UNKNOWN))[0] for rank in marks.rank.tolist()])
    for rank in np.unique(marks.rank[said != UNKNOWN]).tolist():
        mine = (marks.rank == rank) & (said != UNKNOWN)
        own = np.unique(said[mine])
        stage[mine] = own[0]
        if len(own) > 1:
            chunk[mine] = np.searchsorted(own, said[mine])
    return stage, chunk


def _offsets(clocks: pa.Table | None) -> dict[int, int]:
    """Rank -> what to add to its times; ranks whose clocks cannot be compared are not in it."""
    if clocks is None:
        return {}
    known = clocks.filter(pa.array(flags(clocks["offset_ns"].is_valid())))
    return dict(zip(integers(known["rank"]).tolist(), integers(known["offset_ns"]).tolist(), strict=True))
