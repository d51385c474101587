"""What was said about each communication kernel: the record of the call behind it, and how we know.

In order: the record copied onto the kernel; the record linked by External id; the record open on the launching thread
at the launch; a c10d operator or `nccl:*` annotation there; the `nccl:*` range that covers the kernel on its stream;
the kernel's name, where it is honest (the operation in `ncclDevKernel_AllReduce_...` is, `Generic` names none, and
`SendRecv` serves send, recv and all_to_all alike).
Calls coalesced into one kernel share a bundle (`_host_records`), whose size is that of all or unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._classify import operation_of_name
from diagnose.analyses._columns import Ints, codes, dictionary, integers, lookup, take
from diagnose.analyses._host_records import EventRows, HostRecords, OnThreads, Threads
from diagnose.analyses._operations import TRAFFIC_COUNT, code, operation
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
    row_of = EventRows(events)
    row, called = row_of(integers(kernels["event_id"])), row_of(integers(calls["event_id"], -1))
    threads = Threads(events, kernels, called[called >= 0])
    host = HostRecords(calls, called, events, threads)
    own = _own_call(kernels, calls)
    where = threads.of_launch
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


def _said(call: Ints, record: Ints, calls: pa.Table, host: HostRecords) -> tuple[Ints, Ints]:
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


def _from_ranges(
    op: Ints, evidence: Ints, kernels: pa.Table, events: pa.Table, threads: Threads, launched: tuple[Ints, Ints]
) -> None:
    """Fill unknown operations from c10d operators and annotations around the launch, then from ranges on the stream."""
    names = dictionary(events["name"])
    name = codes(events["name"])
    start = integers(events["ts_ns"])
    end = start + integers(events["dur_ns"])
    said = np.array([code(operation(n)) if n.startswith((*_RANGES, *_OPERATORS)) else 0 for n in names], np.int64)

    def rows_of(kind: str, prefixes: tuple[str, ...]) -> Ints:
        rows: Ints = of_kind(events, kind)
        wanted = np.array([n.startswith(prefixes) for n in names], bool)
        return np.compress(wanted[name[rows]], rows)

    def fill(left: Ints, found: Ints, source: str) -> None:
        stated = take(said[name], found, 0)
        left, stated = left[stated > 0], stated[stated > 0]
        left, stated = left[stated < TRAFFIC_COUNT], stated[stated < TRAFFIC_COUNT]
        op[left], evidence[left] = stated, EVIDENCE.index(source)

    for kind, prefixes, source in (("op", _OPERATORS, "launch"), ("annotation", _RANGES, "annotation")):
        left, rows = np.flatnonzero(op == 0), rows_of(kind, prefixes)
        nest = OnThreads(threads.of_rows(rows), start[rows], end[rows], rows)
        fill(left, nest.innermost(launched[0][left], launched[1][left]), source)
    left, rows = np.flatnonzero(op == 0), rows_of("device_annotation", _RANGES)
    nest = OnThreads(integers(events["stream"], -1)[rows], start[rows], end[rows], rows)
    fill(left, nest.innermost(integers(kernels["stream"], -2)[left], integers(kernels["ts_ns"])[left]), "annotation")


def _from_host_ranges(op: Ints, evidence: Ints, kernels: pa.Table) -> None:
    """Operations of host communication (`gloo:all_reduce`), which is its own annotation."""
    stated = [code(operation(n)) if n.startswith(("gloo:", "mpi:")) else 0 for n in dictionary(kernels["name"])]
    said = np.array(stated, np.int64)[codes(kernels["name"])]
    rows = np.flatnonzero((op == 0) & (said > 0) & (said < TRAFFIC_COUNT))
    op[rows], evidence[rows] = said[rows], EVIDENCE.index("annotation")


def _from_names(op: Ints, kernels: pa.Table, host: HostRecords) -> None:
    """Fill what is left from the kernel's name, where it names an operation."""
    exchanged = host.has("all_to_all") or bool((op == code("all_to_all")).any())
    sent = host.has("p2p") or bool((op == code("p2p")).any())
    send_recv = {(True, True): "unknown", (True, False): "all_to_all"}.get((exchanged, sent), "p2p")
    stated = [operation_of_name(n) for n in dictionary(kernels["name"])]
    by_name = np.array([code(send_recv if s == "send_recv" else s) for s in stated], np.int64)
    left = np.flatnonzero(op == 0)
    op[left] = by_name[codes(kernels["name"])][left]
