"""CUDA / HIP graph launches: what they hold and the gaps inside.

One call starts all kernels of a graph, so gaps inside are the device's own (dependencies between nodes), not the
host's. What the graph was captured from is lost: operators and shapes of its kernels are unknown.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, flags, integers, rows_of, take
from diagnose.analyses._intervals import total, union
from diagnose.analyses._work import by_rank
from diagnose.schema import INT32, INT64, table

SCHEMA = table(
    "graph launch",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("launch_id", INT64, "correlation of the launch"),
    ("ts_ns", INT64, "first kernel's start"),
    ("dur_ns", INT64, "to the last kernel's end"),
    ("kernels_count", INT64, "kernels in it"),
    ("gap_ns", INT64, "time inside without any of its kernels"),
    ("launch_gap_ns", INT64, "device idle before its first kernel; null where nothing ran before"),
)


def graphs(kernels: pa.Table, events: pa.Table) -> pa.Table:
    """One row per graph launch that ran kernels, in order of start."""
    parts = [_of_rank(mine, events) for _, mine in by_rank(kernels)]
    return pa.concat_tables(parts) if parts else SCHEMA.empty()


def _of_rank(kernels: pa.Table, events: pa.Table) -> pa.Table:
    start = integers(kernels["ts_ns"])
    end = start + integers(kernels["dur_ns"])
    rows = np.flatnonzero(flags(kernels["graph"]))
    event = rows_of(integers(events["event_id"]), integers(kernels["event_id"])[rows])
    launch = take(integers(events["launch_id"], -1), event, -1)
    file = take(integers(events["file"], -1), event, -1)
    rows, launch, file = rows[launch >= 0], launch[launch >= 0], file[launch >= 0]
    order = np.lexsort((start[rows], launch, file))
    rows, launch, file = rows[order], launch[order], file[order]
    first = np.flatnonzero(np.append(True, (launch[1:] != launch[:-1]) | (file[1:] != file[:-1]))[: len(rows)])
    if not len(first):
        return SCHEMA.empty()
    count = np.diff(np.append(first, len(rows)))
    begin, stop = start[rows][first], np.maximum.reduceat(end[rows], first)
    busy = [total(union(start[some], end[some])) for some in np.split(rows, first[1:])]
    found = SCHEMA.build(
        {
            **{name: kernels[name].take(pa.array(rows[first])) for name in ("rank", "step")},
            "launch_id": launch[first],
            "ts_ns": begin,
            "dur_ns": stop - begin,
            "kernels_count": count,
            "gap_ns": stop - begin - np.array(busy, dtype=np.int64),
            "launch_gap_ns": _idle_before(begin, start, end),
        }
    )
    return found.sort_by("ts_ns")


def _idle_before(moments: Ints, start: Ints, end: Ints) -> np.ma.MaskedArray[tuple[int], np.dtype[np.int64]]:
    """Time without any device work just before each moment; masked where no work came before."""
    busy = union(start, end)
    if not len(busy):
        return np.ma.masked_array(np.zeros(len(moments), np.int64), mask=True)
    at = np.searchsorted(busy[:, 0], moments, side="right") - 1  # the last stretch that began by then
    begun = np.maximum(at, 0)
    running = (at >= 0) & (busy[begun, 0] < moments) & (busy[begun, 1] >= moments)
    over = np.where((at >= 0) & (busy[begun, 1] <= moments), at, at - 1)
    return np.ma.masked_array(
        np.where(running, 0, moments - busy[np.maximum(over, 0), 1]), mask=(over < 0) & ~running, dtype=np.int64
    )
