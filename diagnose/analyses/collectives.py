"""Communication of every rank, with what the other ranks tell about it: who was waited for, and what moving took.

`wait_ns` is the time until the last rank of the group arrived, on clocks made comparable (`clocks`); `transfer_ns` is
the rest. They are known only where nobody leaves the operation before the last rank came (of sends and receives: where
both were still there), every rank of the group was recorded, and clocks can be compared; else they are null and the
duration holds both. Time waited is caused elsewhere:
the late rank is the one with the short kernel.
Bandwidth is size over transfer where that is known (`measured`), else over the duration (`lower` bound); none for
sends and receives, whose duration is mostly their neighbour's. Bus bandwidth is algorithm bandwidth times the
nccl-tests factor of the operation (all-to-all with splits: the share of bytes that leaves the rank); where the network
itself reduces (NVLS, SHARP) it may exceed the link: it is an equivalent, not a measurement of the wire.

Method: `calls_on_device` joined with `matches` and `clocks`; last arrival by maximum over each call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.analyses._arrivals import Arrival, arrivals_of
from diagnose.analyses._columns import Ints, codes, dictionary, integers, label
from diagnose.analyses._operations import VOCABULARY, bus_factor, code
from diagnose.analyses._partition import busy_set, comm_of, exposed_wait_ns, of_class
from diagnose.analyses._splits import leaving_share
from diagnose.schema import FLOAT, INT32, INT64, LABEL, UINT64, table

SCHEMA = table(
    "communication kernel (in CPU-only traces: gloo work)",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("group", LABEL, "process group name; null where unknown"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("seq", INT64, "sequence number in the group"),
    ("comm_id", UINT64, "key shared by all ranks of this call"),
    ("match", INT64, "call instance, one number on all its ranks; null: not matched (`matches` says why)"),
    ("op", LABEL, "normalised operation; p2p for send/recv kernels; unknown"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("dtype", LABEL, "element type; null where unknown"),
    ("group_size", INT32, "ranks; null where unknown"),
    ("peer", INT32, "peer or root, where recorded"),
    ("stream", INT64, "stream"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration: waiting for peers and transfer together"),
    ("hidden_ns", INT64, "of it, under compute of the same rank"),
    ("exposed_ns", INT64, "of it, in the partition: no compute, no communication of a dimension with precedence"),
    ("wait_ns", INT64, "waiting for the last peer; null until calls are matched across ranks"),
    ("transfer_ns", INT64, "after the last peer arrived; null until matched"),
    ("exposed_wait_ns", INT64, "of exposed_ns, waiting for the last peer; null until matched"),
    ("algbw_bytes_per_s", FLOAT, "size / duration (transfer where known); null where size is unknown"),
    ("busbw_bytes_per_s", FLOAT, "nccl-tests bus bandwidth; null where unknown"),
    ("bandwidth_bound", LABEL, "lower (one rank: waiting is inside) | measured (matched)"),
    ("phase", LABEL, "forward | backward | optimizer"),
    ("launch_ns", INT64, "start of the launching call"),
    (
        "blocked_by",
        LABEL,
        "why not hidden: same_stream | launched_late | stream_wait | no_compute_left | unknown; null when hidden",
    ),
    ("module", LABEL, "FSDP unit, module or named range"),
    ("source", LABEL, "source line, where recorded"),
    ("evidence", LABEL, "kernel_args | external_id | launch | annotation | name: where op and size come from"),
)

BOUNDS = ("lower", "measured")


class _Split(NamedTuple):
    """Per row; -1 where unknown."""

    wait_ns: Ints
    transfer_ns: Ints


def collectives(
    calls_on_device: pa.Table, matches: pa.Table, clocks: pa.Table, kernels: pa.Table, members: pa.Table
) -> pa.Table:
    """Every row of `calls_on_device`, in its order."""
    if not calls_on_device.num_rows:
        return SCHEMA.empty()
    split = _split(calls_on_device, arrivals_of(calls_on_device, matches, clocks))
    known = split.wait_ns >= 0
    alg, bus, bound = _bandwidths(calls_on_device, split, matches, members)
    own = {name: calls_on_device[name] for name in SCHEMA.arrow.names if name in calls_on_device.column_names}
    return SCHEMA.build(
        {
            **own,
            "match": matches["match"],
            "wait_ns": np.ma.array(split.wait_ns, mask=~known),
            "transfer_ns": np.ma.array(split.transfer_ns, mask=~known),
            "exposed_wait_ns": np.ma.array(_exposed_wait(calls_on_device, split, kernels), mask=~known),
            "algbw_bytes_per_s": _floats(alg),
            "busbw_bytes_per_s": _floats(bus),
            "bandwidth_bound": label(list(BOUNDS), bound),
        }
    )


def _split(calls: pa.Table, arrival: Arrival) -> _Split:
    """Waiting and transfer of rows whose whole group was seen on comparable clocks."""
    length = integers(calls["dur_ns"])
    known = arrival.complete & (arrival.synchronising | arrival.paired)
    wait = np.where(known, np.clip(arrival.last_ns - arrival.start_ns, 0, length), -1)
    return _Split(wait, np.where(known, length - wait, -1))


def _exposed_wait(calls: pa.Table, split: _Split, kernels: pa.Table) -> Ints:
    """Per row, the exposed part of its waiting."""
    result = np.zeros(calls.num_rows, np.int64)
    with_wait = calls.append_column("wait_ns", pa.array(split.wait_ns))
    for rank in pc.unique(calls["rank"]).to_pylist():
        rows = np.flatnonzero(np.asarray(pc.equal(calls["rank"], rank)))
        mine = kernels.filter(pc.equal(kernels["rank"], rank))
        compute = busy_set(mine, of_class(mine, "compute")) if mine.num_rows else iv.EMPTY
        result[rows] = exposed_wait_ns(comm_of(with_wait.take(rows)), compute)
    return result


def _floats(values: np.ndarray) -> pa.Array:
    return pa.array(values, FLOAT, mask=np.isnan(values))


def _bandwidths(
    calls: pa.Table, split: _Split, matches: pa.Table, members: pa.Table
) -> tuple[np.ndarray, np.ndarray, Ints]:
    """(algorithm, bus bandwidth in bytes per second or NaN, index in BOUNDS or -1) per row. Sends and receives have
    none: most of their duration is waiting for the neighbour."""
    vocabulary = np.array([code(name) for name in dictionary(calls["op"])], np.int64)
    op = vocabulary[codes(calls["op"])]
    size = integers(calls["size_bytes"], -1)
    measured = split.transfer_ns > 0
    length = np.where(measured, split.transfer_ns, integers(calls["dur_ns"]))
    known = (size >= 0) & (length > 0) & (op > 0) & (op != code("p2p"))
    alg = np.where(known, size * 1e9 / np.maximum(length, 1), np.nan)
    ranks = integers(calls["group_size"], -1)
    ranks = np.where(ranks < 0, integers(matches["expected_count"], -1), ranks)
    bus = np.full(len(alg), np.nan)
    for one in np.unique(op).tolist():
        for n in np.unique(ranks[op == one]).tolist():
            factor = bus_factor(VOCABULARY[one], n)
            if factor is not None:
                mine = (op == one) & (ranks == n)
                bus[mine] = alg[mine] * factor
    uneven = np.flatnonzero((op == code("all_to_all")) & np.asarray(calls["in_splits"].is_valid()))
    if len(uneven):
        bus[uneven] = alg[uneven] * leaving_share(calls.take(uneven), members)
    return alg, bus, np.where(np.isnan(alg), -1, measured.astype(np.int64))
