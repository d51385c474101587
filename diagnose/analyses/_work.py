"""Device work of one rank, with the runtime call that launched each piece.

Work is what occupies the device: kernels, copies, sets and communication with a category of its own. Projections of
annotations and records of synchronisations lie on device rows too, but are not work.
A launch is the runtime or driver call with the same correlation in the same file; correlation 0 or none links
nothing, and many kernels may share one call (CUDA and HIP graphs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import Flags, Ints, codes, dense, dictionary, encode, flags, integers, take
from diagnose.schema import DEVICE_WORK_KINDS

NEVER = np.iinfo(np.int64).min
"""Stands for the time of a call that is not known."""

LINKED_SHARE = 0.5
"""Under this share of device work with a launch, launches say nothing about steps (a recording without host side)."""


class Work(NamedTuple):
    """Pieces of device work in order of start; all arrays of one length."""

    row: Ints  # row of the rank's events
    start: Ints
    end: Ints  # as recorded
    lane: Ints  # dense code of (device, stream)
    kernel: Flags  # False: copy or set
    launch: Ints  # row of the launching call, -1: none
    launch_ns: Ints  # its start, NEVER where there is none

    @property
    def linked(self) -> Flags:
        """Pieces whose launch is known."""
        return self.launch >= 0

    @property
    def mostly_linked(self) -> bool:
        """Whether launches can tell which step a piece belongs to."""
        return bool(len(self.row)) and float(self.linked.mean()) >= LINKED_SHARE

    @property
    def in_flight(self) -> Flags:
        """Pieces launched before the recording began: without a launch, and before the first that has one."""
        if not self.mostly_linked:
            return np.zeros(len(self.row), bool)
        first = int(self.start[self.linked].min())
        return np.asarray(~self.linked & (self.start < first), bool)


def by_rank(events: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """(rank, its events), in order of rank. A rank that is null counts as one rank of its own, numbered -1."""
    ranks = events["rank"].fill_null(-1) if events["rank"].null_count else events["rank"]
    distinct = sorted(pc.unique(ranks).to_pylist())
    for rank in distinct:
        yield rank, events if len(distinct) == 1 else events.filter(pc.equal(ranks, rank))


def of_rank(rows: pa.Table, rank: int, absent: int = -1) -> pa.Table:
    """The rows of one rank (null counts as `absent`); nothing is copied where all are."""
    mine = integers(rows["rank"], absent) == rank
    return rows if mine.all() else rows.filter(pa.array(mine))


def of_kind(events: pa.Table, *kinds: str) -> Ints:
    """Rows of the given kinds, in table order."""
    wanted = np.array([name in kinds for name in dictionary(events["kind"])], bool)
    return np.flatnonzero(wanted[codes(events["kind"])]) if len(wanted) else np.zeros(0, np.int64)


def device_work(events: pa.Table) -> Work:
    """Device work of the events of one rank."""
    rows = of_kind(events, *DEVICE_WORK_KINDS)
    start = integers(events["ts_ns"].take(rows)) if len(rows) else np.zeros(0, np.int64)
    order = np.argsort(start, kind="stable")
    rows, start = rows[order], start[order]
    end = start + integers(events["dur_ns"].take(rows)) if len(rows) else start
    calls = _launches(events, rows, end)
    kernel = np.isin(rows, of_kind(events, "kernel", "comm"), assume_unique=True)
    launch_ns = take(integers(events["ts_ns"]), calls, NEVER)
    return Work(rows, start, end, _lanes(events, rows), kernel, calls, launch_ns)


def _lanes(events: pa.Table, rows: Ints) -> Ints:
    """Dense code of (device, stream) of each row; work without a stream has a lane of its own."""
    if not len(rows):
        return np.zeros(0, np.int64)
    part = events.select(["device", "stream"]).take(rows)
    devices, device = encode(part["device"])
    streams, stream = encode(part["stream"])
    pair = (stream + 1) * (len(devices) + 1) + device + 1
    return dense(pair, (len(streams) + 1) * (len(devices) + 1))[1]


def _launches(events: pa.Table, rows: Ints, ends: Ints) -> Ints:
    """Row of the call that launched each piece of work, -1 where none is known or it came after the work's end."""
    calls = of_kind(events, "runtime")
    calls = calls[flags(pc.is_valid(events["launch_id"].take(calls)))] if len(calls) else calls
    if not len(calls) or not len(rows):
        return np.full(len(rows), -1, np.int64)
    call_key, work_key = _join_keys(events, calls, rows)
    call_ns = integers(events["ts_ns"].take(calls))
    order = np.argsort(call_key, kind="stable") if _ascending(call_ns) else np.lexsort((call_ns, call_key))
    known = call_key[order]
    nearest = np.minimum(np.searchsorted(known, work_key, "left"), len(known) - 1)  # the first call of several
    found = order[nearest]
    fits = (known[nearest] == work_key) & (work_key != 0) & (call_ns[found] <= ends)
    return np.where(fits, calls[found], -1)


def _join_keys(events: pa.Table, calls: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Number per call and per piece of work that is equal for equal (file, launch id); 0 where there is no id."""
    call_id, work_id = (integers(events["launch_id"].take(r), 0) for r in (calls, rows))
    files = events["file"]
    if pc.count_distinct(files, mode="all").as_py() <= 1:
        return call_id, work_id
    both = np.concatenate((call_id, work_id))
    ids, place = np.unique(both, return_inverse=True)
    file = integers(files.take(np.concatenate((calls, rows))), -1) + 1
    key = np.where(both == 0, 0, file * (len(ids) + 1) + place + 1)
    return key[: len(calls)], key[len(calls) :]


def _ascending(values: Ints) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def next_on_lane(work: Work) -> Ints:
    """Index of the next piece on the same lane that starts later; -1 for the last ones."""
    order = np.argsort(work.lane, kind="stable")  # work is in order of start
    lane, start = work.lane[order], work.start[order]
    new = np.ones(len(order), bool)
    new[1:] = (lane[1:] != lane[:-1]) | (start[1:] != start[:-1])
    heads = np.flatnonzero(new)
    head_of = np.cumsum(new) - 1
    following = np.append(heads[1:], len(order))[head_of] if len(order) else heads
    same = following < len(order)
    same[same] = lane[following[same]] == lane[same]
    result = np.full(len(order), -1, np.int64)
    result[order[same]] = order[following[same]]
    return result


def serial_ends(work: Work) -> Ints:
    """Ends cut at the next start on the same lane: where a stream can still be said to have been busy.

    Step boundaries rest on these, so that one absurd duration cannot swallow the steps after it.
    """
    following = next_on_lane(work)
    return np.where(following >= 0, np.minimum(work.end, work.start[following]), work.end)


_DEVICE_TRAFFIC = re.compile(r"^(nccl:|xccl:|hccl:|record_param_comms$|aten::(_?cudnn|_?miopen)_)")
_HOST_TRAFFIC = re.compile(r"^(gloo|mpi):")


def side(events: pa.Table, work: Work, files: pa.Table | None = None) -> str:
    """What one rank's recording shows: `device` work; `host` work only, as on a CPU job; or the device is `missing`.

    A job that ran on a GPU leaves traces of it on the host (launch calls, NCCL ranges, a named GPU) even where the
    profiler lost the device side; then host operators are no stand-in for kernels.
    """
    if len(work.row):
        return "device"
    if len(of_kind(events, "runtime")):
        return "missing"
    names = dictionary(events["name"])
    if any(_HOST_TRAFFIC.match(name) for name in names):
        return "host"
    if any(_DEVICE_TRAFFIC.match(name) for name in names):
        return "missing"
    return "missing" if files is not None and _has_gpu(events, files) else "host"


def _has_gpu(events: pa.Table, files: pa.Table) -> bool:
    named = flags(pc.is_valid(files["gpu"]))
    with_gpu = set(integers(files["file"])[named].tolist())
    return any(f in with_gpu for f in pc.unique(events["file"]).to_pylist())
