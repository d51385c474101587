"""Calls recorded on the host threads of one rank, and which of them became one kernel together.

Calls that were coalesced into one kernel are one *bundle*: records with one sequence number in one group, or inside
one coalescing range. Its size is the sum of its records or unknown, never that of the first. Broadcasts from
different roots in one bundle are an all_gather of uneven parts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, encode, integers, lookup, take
from diagnose.analyses._nesting import Nesting
from diagnose.analyses._operations import TRAFFIC_COUNT, VOCABULARY, code, operation
from diagnose.analyses._work import NEVER, of_kind


class EventRows:
    """Row of a rank's events per event id; -1: not there."""

    def __init__(self, events: pa.Table) -> None:
        self._ids = integers(events["event_id"])
        self._order: Ints | None = None
        if np.any(self._ids[1:] < self._ids[:-1]):
            self._order = np.argsort(self._ids, kind="stable")
            self._ids = self._ids[self._order]

    def __call__(self, event_ids: Ints) -> Ints:
        place = lookup(self._ids, event_ids)
        return place if self._order is None else take(self._order, place, -1)


class Threads:
    """Dense codes of the host threads that launch or record communication; -1 for all others."""

    def __init__(self, events: pa.Table, kernels: pa.Table, calls: Ints) -> None:
        """`calls` are the rows of events that carry records."""
        self._events = events
        launching = kernels.select(["launch_process", "launch_thread"]).rename_columns(["process", "thread"])
        recording = events.select(["process", "thread"]).take(calls)
        both = pa.concat_tables([launching, recording]).group_by(["process", "thread"]).aggregate([]).to_pylist()
        self._pairs = [(row["process"], row["thread"]) for row in both if None not in row.values()]
        self.of_launch = self._code(launching)

    def of_rows(self, rows: Ints) -> Ints:
        """Code of rows of events; rows below 0 have none."""
        known = self._code(self._events.select(["process", "thread"]).take(np.maximum(rows, 0)))
        return np.where(rows >= 0, known, -1)

    def _code(self, pairs: pa.Table) -> Ints:
        process, thread = (integers(pairs[c], NEVER) for c in ("process", "thread"))
        code = np.full(len(process), -1, np.int64)
        for i, (p, t) in enumerate(self._pairs):
            code[(process == p) & (thread == t)] = i
        return code


class OnThreads:
    """`Nesting` for sparse codes of threads or streams; a negative code holds nothing."""

    def __init__(self, thread: Ints, start: Ints, end: Ints, values: Ints) -> None:
        kept = thread >= 0
        self._known, dense = np.unique(thread[kept], return_inverse=True)
        self._nest = Nesting(dense.astype(np.int64), start[kept], end[kept], values[kept])

    def innermost(self, thread: Ints, moment: Ints) -> Ints:
        found = np.full(len(thread), -1, np.int64)
        place = lookup(self._known, thread)
        asked = np.flatnonzero(place >= 0)
        if len(asked):
            found[asked] = self._nest.innermost(place[asked], moment[asked])
        return found


class HostRecords:
    """Calls recorded on host threads, with their bundles. Arrays are per row of `calls` unless said otherwise."""

    def __init__(self, calls: pa.Table, row: Ints, events: pa.Table, threads: Threads) -> None:
        """`row` is the row of events of each call, -1 where it has none."""
        on_host = np.array([s == "record_param_comms" for s in dictionary(calls["source"])], bool)
        self._host = np.flatnonzero(on_host[codes(calls["source"])] & (row >= 0))
        self._external = take(integers(events["external_id"], -1), row, -1)
        self.op = np.array([code(operation(n)) for n in dictionary(calls["op"])], np.int64)[codes(calls["op"])]
        self._start = integers(calls["ts_ns"])
        self._end = self._start + integers(calls["dur_ns"])
        self._thread = threads.of_rows(row)
        self._open = OnThreads(self._thread[self._host], self._start[self._host], self._end[self._host], self._host)
        self._traffic = self._distinct_traffic()
        self._key = _group_sequence(calls)
        self._bundles(calls, self._coalescing_ranges(events, threads))

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

    def _bundles(self, calls: pa.Table, ranges: OnThreads) -> None:
        """Bundle of each host record: by coalescing range, else by group and sequence number, else alone.

        Sequence numbers of send and recv count on another scale, so those are gathered by ranges alone.
        """
        rows = self._host
        within = ranges.innermost(self._thread[rows], self._start[rows])
        alone = -1 - np.arange(len(rows), dtype=np.int64)
        numbered = (self._key[rows] >= 0) & (self.op[rows] != code("p2p"))
        after_ranges = int(within.max(initial=-1)) + 1
        key = np.where(within >= 0, within, np.where(numbered, after_ranges + self._key[rows], alone))
        bundle = np.unique(key, return_inverse=True)[1].astype(np.int64)
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

    def _coalescing_ranges(self, events: pa.Table, threads: Threads) -> OnThreads:
        """Ranges in which calls were gathered: `nccl:coalesced` annotations, start/end records on one thread."""
        named = np.array([n.startswith("nccl:coalesced") for n in dictionary(events["name"])], bool)
        rows = of_kind(events, "annotation")
        rows = rows[named[codes(events["name"])[rows]]]
        start = integers(events["ts_ns"])[rows]
        parts = [(threads.of_rows(rows), start, start + integers(events["dur_ns"])[rows])]
        first, last = (self._host[self.op[self._host] == code(o)] for o in ("start_coalescing", "end_coalescing"))
        for thread in np.unique(self._thread[first]).tolist():
            begin = np.sort(self._start[first][self._thread[first] == thread])
            close = np.sort(self._end[last][self._thread[last] == thread])
            at = np.searchsorted(close, begin, "left")
            begin, at = begin[at < len(close)], at[at < len(close)]
            parts.append((np.full(len(begin), thread, np.int64), begin, close[at]))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return OnThreads(columns[0], columns[1], columns[2], np.arange(len(columns[0]), dtype=np.int64))


def _roots_differ(calls: pa.Table, rows: Ints) -> bool:
    """Whether broadcasts come from different roots; where roots were not recorded, that they share one call says so."""
    roots = calls["peer"].take(pa.array(rows)).to_pylist()
    return len(set(roots)) == len(roots) or set(roots) == {None}


def _group_sequence(calls: pa.Table) -> Ints:
    """One number per (group, sequence number); -1 where either is unknown."""
    sequences, seq = encode(calls["seq"])
    group = codes(calls["group"])
    return np.where((group >= 0) & (seq >= 0), group * (len(sequences) + 1) + seq, -1)
