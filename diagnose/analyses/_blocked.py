"""Why a piece of communication was not hidden under compute, from what one rank's timeline shows.

In order: `same_stream` (it ran on the stream that computes, so nothing could run beside it), `launched_late` (its
launch came after compute had run out), `stream_wait` (the next compute kernel was already launched and began as soon
as it ended: it waited for this), `no_compute_left` (no compute kernel of the step starts after it), `unknown`.
This is the reason on the device, not its cause in the program: a late launch may come from a slow host or from a
communication stream that the framework serialised. Where launches were not recorded, waits cannot be told.

Method: for each piece, the last compute before and the first compute after its exposed part.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Flags, Ints, encode, flags, integers, place, take
from diagnose.analyses._partition import of_class
from diagnose.analyses._work import NEVER

REASONS = ("same_stream", "launched_late", "stream_wait", "no_compute_left", "unknown")
WAKE_NS = 50_000
"""A kernel that waited for an event starts within this after it; event and launch latency are a few microseconds."""
_FOREVER = np.iinfo(np.int64).max


def blocked_by(comm: pa.Table, exposed_ns: Ints, kernels: pa.Table, step_end: Ints) -> Ints:
    """Index in REASONS per row of `comm` (kernels of class comm); -1 where nothing was exposed.

    `kernels` are all rows of the rank in order of start; `step_end` is the end of each row's step.
    """
    compute = kernels.filter(pa.array(of_class(kernels, "compute")))
    start = integers(comm["ts_ns"])
    end = start + integers(comm["dur_ns"])
    if not compute.num_rows:
        return np.where(exposed_ns > 0, REASONS.index("no_compute_left"), -1)
    begin = integers(compute["ts_ns"])
    order = np.argsort(begin, kind="stable")
    begin = begin[order]
    finish = np.maximum.accumulate(begin + integers(compute["dur_ns"])[order])
    issued = integers(compute["launch_ns"], NEVER)[order]
    busy = iv.union(begin, finish)
    cover = iv.index_at(busy, start)
    exposed_from = np.where(cover >= 0, take(busy[:, 1], cover, NEVER), start)
    before = np.searchsorted(begin, exposed_from, "left") - 1
    after = np.searchsorted(begin, exposed_from, "left")
    next_start, next_issue = (np.append(c, _FOREVER)[after] for c in (begin, issued))
    ran_out = take(finish, before, NEVER)
    launch = integers(comm["launch_ns"], NEVER)
    late = (launch != NEVER) & (cover < 0) & (launch >= ran_out)
    waited = (next_start >= end) & (next_start - end <= WAKE_NS) & (next_issue != NEVER) & (next_issue < end)
    reasons = np.select(
        [_on_compute_stream(comm, compute), late, waited, next_start >= step_end],
        [0, 1, 2, 3],
        REASONS.index("unknown"),
    )
    return np.where(exposed_ns > 0, reasons, -1).astype(np.int64)


def _on_compute_stream(comm: pa.Table, compute: pa.Table) -> Flags:
    """Rows on the stream that carries most compute time of their device."""
    devices, device = encode(compute["device"])
    streams, stream = encode(compute["stream"])
    if not len(streams):
        return np.zeros(comm.num_rows, bool)
    pair = (stream + 1) * (len(devices) + 1) + device + 1
    main = int(np.argmax(np.bincount(pair, weights=integers(compute["dur_ns"]).astype(float))))
    of_comm = (place(streams, comm["stream"]) + 1) * (len(devices) + 1) + place(devices, comm["device"]) + 1
    same: Flags = (of_comm == main) & flags(comm["stream"].is_valid())
    return same
