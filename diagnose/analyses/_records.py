"""What was said about each communication kernel: the record of the call behind it, and how we know.

In order: the record copied onto the kernel; the record linked by External id; the record open on the launching thread
at the launch; a c10d operator or `nccl:*` annotation there; the `nccl:*` range that covers the kernel on its stream;
the kernel's name, where it is honest (the operation in `ncclDevKernel_AllReduce_...` is, `Generic` names none, and
`SendRecv` serves send, recv and all_to_all alike).

Calls that were coalesced into one kernel are one *bundle*: records with one sequence number in one group, or inside
one coalescing range. Its size is the sum of its records or unknown, never that of the first. Broadcasts from
different roots in one bundle are an all_gather of uneven parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._classify import operation_of_name
from diagnose.analyses._columns import Ints, codes, dictionary, encode, flags, integers, lookup, take
from diagnose.analyses._nesting import Nesting
from diagnose.analyses._operations import TRAFFIC_COUNT, VOCABULARY, code, operation
from diagnose.analyses._work import NEVER, of_kind

EVIDENCE = ("kernel_args", "external_id", "launch", "annotation", "name")
_RANGES = ("nccl:", "xccl:", "hccl:")
_OPERATORS = ("c10d::", "_c10d_functional::", "symm_mem::")


class Records(NamedTuple):
    """Per communication kernel; all of one length."""

    call: Ints  # row of `calls` that names group, sequence, dtype; -1: none
    op: Ints  # index in VOCABULARY; 0: unknown
    size_bytes: Ints  # -1: unknown
    evidence: Ints  # index in EVIDENCE


def records(kernels: pa.Table, calls: pa.Table, events: pa.Table) -> Records:
    """`kernels` are the communication rows of one rank, `calls` and `events` all of that rank."""
    threads = _Threads(events)
    host = _HostRecords(calls, events, threads)
    row = host.rows_of(integers(kernels["event_id"]))
    own = _own_call(kernels, calls)
    where = threads.code(kernels["launch_process"], kernels["launch_thread"])
    launch = integers(kernels["launch_ns"], NEVER)
    linked = host.by_external_id(take(integers(events["external_id"], -1), row, -1))
    inside = host.open_at(where, launch)
    record = np.where(linked >= 0, linked, inside)
    record = np.where((record < 0) & (own >= 0), host.by_sequence(own), record)
    evidence = np.select([own >= 0, linked >= 0, inside >= 0], [0, 1, 2], len(EVIDENCE) - 1)
    call = np.where(own >= 0, own, record)
    op, size = _said(call, record, calls, host)
    _from_host_ranges(op, evidence, kernels)
    _from_ranges(op, evidence, kernels, events, threads, (where, launch))
    _from_names(op, kernels, host)
    return Records(call, op, size, evidence)


def _own_call(kernels: pa.Table, calls: pa.Table) -> Ints:
    """Row of `calls` recorded on the kernel itself."""
    ids = integers(calls["event_id"], -1)
    order = np.argsort(ids, kind="stable")
    return take(order, lookup(ids[order], integers(kernels["event_id"])), -1)


def _said(call: Ints, record: Ints, calls: pa.Table, host: _HostRecords) -> tuple[Ints, Ints]:
    """Operation and size of each kernel from its call and the bundle of its host record."""
    op = take(host.op, call, 0)
    size = take(integers(calls["size_bytes"], -1), call, -1)
    bundle = take(host.bundle, record, -1)
    several = take(host.bundle_count, bundle, 0) > 1
    gathered = (bundle >= 0) & (several | (op == 0) | (op >= TRAFFIC_COUNT))
    kernels_in = take(np.bincount(bundle[bundle >= 0], minlength=len(host.bundle_count)), bundle, 0)
    op = np.where(gathered, take(host.bundle_op, bundle, 0), op)
    size = np.where(gathered, np.where(kernels_in == 1, take(host.bundle_size, bundle, -1), -1), size)
    return np.where(op < TRAFFIC_COUNT, op, 0), size


class _Threads:
    """Dense codes of (process, thread)."""

    def __init__(self, events: pa.Table) -> None:
        process, thread = integers(events["process"], NEVER), integers(events["thread"], NEVER)
        self._process, p = np.unique(process, return_inverse=True)
        self._thread, t = np.unique(thread, return_inverse=True)
        self.of_event = p * len(self._thread) + t

    def code(self, process: pa.ChunkedArray, thread: pa.ChunkedArray) -> Ints:
        """Code of each pair; -1 where either is unknown."""
        p = lookup(self._process, integers(process, NEVER))
        t = lookup(self._thread, integers(thread, NEVER))
        known = (p >= 0) & (t >= 0) & flags(process.is_valid()) & flags(thread.is_valid())
        return np.where(known, p * len(self._thread) + t, -1)


class _OnThreads:
    """`Nesting` for sparse thread codes."""

    def __init__(self, thread: Ints, start: Ints, end: Ints, values: Ints) -> None:
        self._known, dense = np.unique(thread, return_inverse=True)
        self._nest = Nesting(dense.astype(np.int64), start, end, values)

    def innermost(self, thread: Ints, moment: Ints) -> Ints:
        found = np.full(len(thread), -1, np.int64)
        place = lookup(self._known, thread)
        asked = np.flatnonzero(place >= 0)
        if len(asked):
            found[asked] = self._nest.innermost(place[asked], moment[asked])
        return found


class _HostRecords:
    """Calls recorded on host threads, with their bundles. Arrays are per row of `calls` unless said otherwise."""

    def __init__(self, calls: pa.Table, events: pa.Table, threads: _Threads) -> None:
        ids = integers(events["event_id"])
        self._event_row = np.argsort(ids, kind="stable")
        self._event_order = ids[self._event_row]
        row = self.rows_of(integers(calls["event_id"], -1))
        on_host = np.array([s == "record_param_comms" for s in dictionary(calls["source"])], bool)
        self._host = np.flatnonzero(on_host[codes(calls["source"])] & (row >= 0))
        self._external = take(integers(events["external_id"], -1), row, -1)
        self.op = np.array([code(operation(n)) for n in dictionary(calls["op"])], np.int64)[codes(calls["op"])]
        self._start = integers(calls["ts_ns"])
        self._end = self._start + integers(calls["dur_ns"])
        self._thread = take(threads.of_event, row, -1)
        self._open = _OnThreads(self._thread[self._host], self._start[self._host], self._end[self._host], self._host)
        self._traffic = self._distinct_traffic()
        self._key = _group_sequence(calls)
        self._bundles(calls, self._coalescing_ranges(events, threads))

    def rows_of(self, event_ids: Ints) -> Ints:
        """Row of the rank's events per event id; -1: not there."""
        return take(self._event_row, lookup(self._event_order, event_ids), -1)

    def by_external_id(self, external: Ints) -> Ints:
        """Row of the record whose operator has the External id; -1: none."""
        rows = self._host[self._external[self._host] > 0]
        rows = rows[np.argsort(self._external[rows], kind="stable")]
        found = take(rows, lookup(self._external[rows], external), -1)
        return np.where(external > 0, found, -1)

    def open_at(self, thread: Ints, moment: Ints) -> Ints:
        """Row of the innermost record open at each launch; -1: none."""
        return self._open.innermost(thread, moment)

    def by_sequence(self, own: Ints) -> Ints:
        """Host record with the group and sequence number of a kernel's own record; -1: none."""
        rows = self._traffic[self._key[self._traffic] >= 0]
        rows = rows[np.argsort(self._key[rows], kind="stable")]
        return take(rows, lookup(self._key[rows], take(self._key, own, -2)), -1)

    def has(self, op: str) -> bool:
        """Whether any call is of the operation."""
        return bool((self.op == code(op)).any())

    def _distinct_traffic(self) -> Ints:
        """Host records that move data, without those inside another record of the same operation (the same call)."""
        rows = self._host[self.op[self._host] < TRAFFIC_COUNT]
        rows = rows[np.lexsort((-self._end[rows], self._start[rows], self.op[rows], self._thread[rows]))]
        thread, op, start, end = (c[rows] for c in (self._thread, self.op, self._start, self._end))
        inner = np.zeros(len(rows), bool)
        inner[1:] = (thread[1:] == thread[:-1]) & (op[1:] == op[:-1]) & (start[1:] < end[:-1]) & (end[1:] <= end[:-1])
        return rows[~inner]

    def _bundles(self, calls: pa.Table, ranges: _OnThreads) -> None:
        """Bundle of each host record: by coalescing range, else by group and sequence number, else alone.

        Sequence numbers of send and recv count on another scale, so those are gathered by ranges alone.
        """
        rows = self._host
        within = ranges.innermost(self._thread[rows], self._start[rows])
        alone = -1 - np.arange(len(rows), dtype=np.int64)
        numbered = (self._key[rows] >= 0) & (self.op[rows] != code("p2p"))
        key = np.where(within >= 0, 0, np.where(numbered, self._key[rows], alone))
        bundle = np.unique(np.stack((within, key), axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        count = int(bundle.max(initial=-1)) + 1
        self.bundle = np.full(calls.num_rows, -1, np.int64)
        self.bundle[rows] = bundle
        member = self.bundle[self._traffic]
        op, size = self.op[self._traffic], integers(calls["size_bytes"], -1)[self._traffic]
        self.bundle_count = np.bincount(member, minlength=count)
        low, high = np.full(count, len(VOCABULARY), np.int64), np.full(count, -1, np.int64)
        np.minimum.at(low, member, op)
        np.maximum.at(high, member, op)
        self.bundle_op = np.where(low == high, low, 0)
        total, unknown = np.zeros(count, np.int64), np.zeros(count, bool)
        np.add.at(total, member, np.maximum(size, 0))
        np.logical_or.at(unknown, member, size < 0)
        many = self.bundle_count > 1
        for b in np.flatnonzero(many & (self.bundle_op == code("broadcast"))).tolist():
            if _roots_differ(calls, self._traffic[member == b]):
                self.bundle_op[b] = code("all_gather")
        unknown |= (self.bundle_op == 0) | (many & (self.bundle_op == code("p2p")))
        self.bundle_size = np.where(unknown | (self.bundle_count == 0), -1, total)

    def _coalescing_ranges(self, events: pa.Table, threads: _Threads) -> _OnThreads:
        """Ranges in which calls were gathered: `nccl:coalesced` annotations, start/end records on one thread."""
        named = np.array([n.startswith("nccl:coalesced") for n in dictionary(events["name"])], bool)
        rows = of_kind(events, "annotation")
        rows = rows[named[codes(events["name"])[rows]]]
        start = integers(events["ts_ns"])[rows]
        parts = [(threads.of_event[rows], start, start + integers(events["dur_ns"])[rows])]
        first, last = (self._host[self.op[self._host] == code(o)] for o in ("start_coalescing", "end_coalescing"))
        for thread in np.unique(self._thread[first]).tolist():
            begin = np.sort(self._start[first][self._thread[first] == thread])
            close = np.sort(self._end[last][self._thread[last] == thread])
            at = np.searchsorted(close, begin, "left")
            begin, at = begin[at < len(close)], at[at < len(close)]
            parts.append((np.full(len(begin), thread, np.int64), begin, close[at]))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return _OnThreads(columns[0], columns[1], columns[2], np.arange(len(columns[0]), dtype=np.int64))


def _roots_differ(calls: pa.Table, rows: Ints) -> bool:
    """Whether broadcasts come from different roots; where roots were not recorded, that they share one call says so."""
    roots = calls["peer"].take(pa.array(rows)).to_pylist()
    return len(set(roots)) == len(roots) or set(roots) == {None}


def _group_sequence(calls: pa.Table) -> Ints:
    """One number per (group, sequence number); -1 where either is unknown."""
    sequences, seq = encode(calls["seq"])
    group = codes(calls["group"])
    return np.where((group >= 0) & (seq >= 0), group * (len(sequences) + 1) + seq, -1)


def _from_ranges(
    op: Ints, evidence: Ints, kernels: pa.Table, events: pa.Table, threads: _Threads, launched: tuple[Ints, Ints]
) -> None:
    """Fill unknown operations from c10d operators and annotations around the launch, then from ranges on the stream."""
    names = dictionary(events["name"])
    name = codes(events["name"])
    start = integers(events["ts_ns"])
    end = start + integers(events["dur_ns"])
    said = np.array([code(operation(n)) if n.startswith((*_RANGES, *_OPERATORS)) else 0 for n in names], np.int64)

    def rows_of(kind: str, prefixes: tuple[str, ...]) -> Ints:
        rows = of_kind(events, kind)
        return rows[np.array([n.startswith(prefixes) for n in names], bool)[name[rows]]]

    def fill(left: Ints, found: Ints, source: str) -> None:
        stated = take(said[name], found, 0)
        left, stated = left[stated > 0], stated[stated > 0]
        left, stated = left[stated < TRAFFIC_COUNT], stated[stated < TRAFFIC_COUNT]
        op[left], evidence[left] = stated, EVIDENCE.index(source)

    for kind, prefixes, source in (("op", _OPERATORS, "launch"), ("annotation", _RANGES, "annotation")):
        left, rows = np.flatnonzero(op == 0), rows_of(kind, prefixes)
        nest = _OnThreads(threads.of_event[rows], start[rows], end[rows], rows)
        fill(left, nest.innermost(launched[0][left], launched[1][left]), source)
    left, rows = np.flatnonzero(op == 0), rows_of("device_annotation", _RANGES)
    nest = _OnThreads(integers(events["stream"], -1)[rows], start[rows], end[rows], rows)
    fill(left, nest.innermost(integers(kernels["stream"], -2)[left], integers(kernels["ts_ns"])[left]), "annotation")


def _from_host_ranges(op: Ints, evidence: Ints, kernels: pa.Table) -> None:
    """Operations of host communication (`gloo:all_reduce`), which is its own annotation."""
    stated = [code(operation(n)) if n.startswith(("gloo:", "mpi:")) else 0 for n in dictionary(kernels["name"])]
    said = np.array(stated, np.int64)[codes(kernels["name"])]
    rows = np.flatnonzero((op == 0) & (said > 0) & (said < TRAFFIC_COUNT))
    op[rows], evidence[rows] = said[rows], EVIDENCE.index("annotation")


def _from_names(op: Ints, kernels: pa.Table, host: _HostRecords) -> None:
    """Fill what is left from the kernel's name, where it names an operation."""
    exchanged = host.has("all_to_all") or bool((op == code("all_to_all")).any())
    sent = host.has("p2p") or bool((op == code("p2p")).any())
    send_recv = {(True, True): "unknown", (True, False): "all_to_all"}.get((exchanged, sent), "p2p")
    stated = [operation_of_name(n) for n in dictionary(kernels["name"])]
    by_name = np.array([code(send_recv if s == "send_recv" else s) for s in stated], np.int64)
    left = np.flatnonzero(op == 0)
    op[left] = by_name[codes(kernels["name"])][left]
