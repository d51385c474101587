"""When a stage really worked for a mark, and in which step.

With a device: from the first to the last piece of compute launched inside the mark, so the device's lag behind the host
does not matter and waiting for a receive before or after is not work (between two pieces it is: a stage that computes
and communicates inside its layers works). Without a device: the mark itself, without receives that it waits for before
its first operator and sends after its last; work that is no operator (sleeping, Python) counts there.
A mark belongs to the step whose host interval holds its start. Where no steps are known, a micro-batch that comes again
begins another step; marks without numbers then tell no step and are left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers
from diagnose.analyses._pipeline_marks import UNKNOWN, Marks
from diagnose.analyses._pipeline_work import counted

_WORK = ("compute", "unclassified")


def work_times(marks: Marks, events: pa.Table, kernels: pa.Table | None) -> tuple[Ints, Ints]:
    """(start, end) of the work of each mark; equal where there was none."""
    start, end = marks.start.copy(), marks.end.copy()
    for rank in np.unique(marks.rank).tolist():
        mine = np.flatnonzero(marks.rank == rank)
        own = None if kernels is None else kernels.filter(pa.array(integers(kernels["rank"], UNKNOWN) == rank))
        if own is not None and flags(own["device"].is_valid()).any():
            start[mine], end[mine] = _on_device(marks.take(mine), own)
        else:
            rows = np.flatnonzero(integers(events["rank"], UNKNOWN) == rank)
            start[mine], end[mine] = _on_host(marks.take(mine), events.take(pa.array(rows)))
    return start, end


def _on_device(marks: Marks, kernels: pa.Table) -> tuple[Ints, Ints]:
    wanted = np.array([name in _WORK for name in dictionary(kernels["class"])])[codes(kernels["class"])]
    known = np.flatnonzero(wanted & flags(kernels["launch_ns"].is_valid()))
    launch = integers(kernels["launch_ns"])[known]
    order = np.argsort(launch, kind="stable")
    launch, begun = launch[order], integers(kernels["ts_ns"])[known][order]
    ended = begun + integers(kernels["dur_ns"])[known][order]
    low, high = np.searchsorted(launch, marks.start), np.searchsorted(launch, marks.end)
    found = high > low
    first, last = marks.start.copy(), marks.start.copy()
    for i in np.flatnonzero(found).tolist():  # one turn per micro-batch and phase, not per kernel
        first[i], last[i] = begun[low[i] : high[i]].min(), ended[low[i] : high[i]].max()
    return first, last


def _on_host(marks: Marks, events: pa.Table) -> tuple[Ints, Ints]:
    kinds, names = dictionary(events["kind"]), dictionary(events["name"])
    kind, name = codes(events["kind"]), codes(events["name"])
    ts = integers(events["ts_ns"])
    end = ts + integers(events["dur_ns"])
    op: Flags = np.array([k == "op" for k in kinds])[kind]
    sends, receives, exchanges = (
        np.array([n.startswith(starts) for n in names])[name]
        for starts in (("c10d::send", "c10d::isend"), ("gloo:recv", "mpi:recv"), ("c10d::", "record_param_comms"))
    )
    computes = np.flatnonzero(op & ~exchanges)
    begun, ended = np.sort(ts[computes]), np.sort(end[computes])
    came, left = np.sort(end[receives]), np.sort(ts[op & sends])
    first_op = _at(begun, np.searchsorted(begun, marks.start), marks.end)
    received = _at(came, np.searchsorted(came, np.minimum(first_op, marks.end), "right") - 1, marks.start)
    last_op = _at(ended, np.searchsorted(ended, marks.end, "right") - 1, marks.start)
    sent = _at(left, np.searchsorted(left, np.maximum(last_op, marks.start)), marks.end)
    return np.maximum(marks.start, received), np.minimum(marks.end, sent)


def _at(values: Ints, index: Ints, absent: Ints) -> Ints:
    inside = (index >= 0) & (index < len(values))
    return np.where(inside, values[np.clip(index, 0, max(0, len(values) - 1))] if len(values) else absent, absent)


def steps_of(marks: Marks, steps: pa.Table | None) -> Ints:
    """Step number of each mark; -1 where none is known."""
    result = np.full(len(marks.start), UNKNOWN)
    for rank in np.unique(marks.rank).tolist():
        mine = np.flatnonzero(marks.rank == rank)
        own = None if steps is None else steps.filter(pa.array(integers(steps["rank"], UNKNOWN) == rank))
        if own is not None and own.num_rows and not own["host_ts_ns"].null_count:
            begin, number = integers(own["host_ts_ns"]), integers(own["step"])
            at = np.searchsorted(begin, marks.start[mine], "right") - 1
            inside = (at >= 0) & (marks.start[mine] < (begin + integers(own["host_dur_ns"]))[at])
            result[mine] = np.where(inside, number[at], UNKNOWN)
        else:
            result[mine] = _again(marks.take(mine))
    return result


def _again(marks: Marks) -> Ints:
    """How often this very work has come before."""
    told = [(s.phase, s.stage, s.chunk, s.microbatch) for s in marks.said]
    _, code = np.unique(np.array([repr(t) for t in told]), return_inverse=True)
    known = np.array([s.microbatch != UNKNOWN for s in marks.said])
    return np.where(known, counted(code), UNKNOWN)
