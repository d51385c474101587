"""The exact partition of one rank's time into parts that are disjoint and leave nothing out.

At each moment the first part that applies, in the order of `schema.PARTS`: compute, exposed communication by
dimension, unclassified kernels, copies, idle by cause. Communication under compute is hidden and takes no time of its
own. Matched collectives (wait_ns known) are split into waiting and transfer; others stay one part, `<dim>_comm`.

Method: one interval set per part, each minus all before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers
from diagnose.schema import COMM_DIMS, COMM_PARTS, IDLE_CAUSES, PARTS


class Comm(NamedTuple):
    """Communication of one rank: times, index in COMM_DIMS, and the waiting part (-1: not known)."""

    start: Ints
    end: Ints
    dim: Ints
    wait_ns: Ints


def of_class(kernels: pa.Table, kind: str) -> Flags:
    """Rows of one class."""
    return np.array([c == kind for c in dictionary(kernels["class"])], bool)[codes(kernels["class"])]


def busy_set(kernels: pa.Table, chosen: Flags | None = None) -> Ints:
    """What the chosen rows (all by default) cover together."""
    start = integers(kernels["ts_ns"])
    end = start + integers(kernels["dur_ns"])
    return iv.union(start, end) if chosen is None else iv.union(start[chosen], end[chosen])


def comm_of(collectives: pa.Table) -> Comm:
    """Communication from the `collectives` rows of one rank."""
    start = integers(collectives["ts_ns"])
    known = {d: i for i, d in enumerate(COMM_DIMS)}
    by_code = np.array([known.get(d, len(COMM_DIMS) - 1) for d in dictionary(collectives["dim"])], np.int64)
    return Comm(
        start,
        start + integers(collectives["dur_ns"]),
        by_code[codes(collectives["dim"])],
        integers(collectives["wait_ns"], -1),
    )


def comm_sets(comm: Comm) -> dict[str, Ints]:
    """Interval set per communication part, in order of precedence, not yet layered."""
    sets = {}
    split = np.clip(comm.start + np.maximum(comm.wait_ns, 0), comm.start, comm.end)
    for index, dim in enumerate(COMM_DIMS):
        mine = comm.dim == index
        matched = mine & (comm.wait_ns >= 0)
        sets[f"{dim}_wait"] = iv.union(comm.start[matched], split[matched])
        sets[f"{dim}_transfer"] = iv.union(split[matched], comm.end[matched])
        alone = mine & ~matched
        sets[f"{dim}_comm"] = iv.union(comm.start[alone], comm.end[alone])
    assert tuple(sets) == COMM_PARTS
    return sets


def partition(kernels: pa.Table, idle: pa.Table, collectives: pa.Table) -> dict[str, Ints]:
    """Disjoint interval set per part (PARTS, in order) of one rank; together they cover all work and all idle."""
    sets = {"compute": busy_set(kernels, of_class(kernels, "compute")), **comm_sets(comm_of(collectives))}
    sets["other_comm"] = iv.merge(sets["other_comm"], _unlisted(kernels, collectives))
    sets["unclassified"] = busy_set(kernels, of_class(kernels, "unclassified"))
    sets["copy"] = busy_set(kernels, of_class(kernels, "copy"))
    start = integers(idle["ts_ns"])
    end = start + integers(idle["dur_ns"])
    names, cause = dictionary(idle["cause"]), codes(idle["cause"])
    for part in IDLE_CAUSES:
        mine = cause == (names.index(part) if part in names else -2)
        sets[part] = iv.union(start[mine], end[mine])
    return dict(zip(PARTS, iv.layers([sets[part] for part in PARTS]), strict=True))


def _unlisted(kernels: pa.Table, collectives: pa.Table) -> Ints:
    """Communication kernels without a row in `collectives`: of no known dimension."""
    comm = of_class(kernels, "comm")
    listed = np.isin(integers(kernels["event_id"]), integers(collectives["event_id"], -1))
    return busy_set(kernels, comm & ~listed)


def exposed_ns(comm: Comm, compute: Ints) -> Ints:
    """Of each communication, the time that the partition gives to it.

    Where several of one dimension overlap, the moment belongs to the one that started first, so that the sum over
    rows is the partition's. Method: what lies beyond the reach of earlier rows, minus compute and dimensions before.
    """
    return _exposed(comm, comm.end, compute)


def exposed_wait_ns(comm: Comm, compute: Ints) -> Ints:
    """Of `exposed_ns`, the part before the last peer arrived; 0 where that is not known."""
    return _exposed(comm, np.clip(comm.start + np.maximum(comm.wait_ns, 0), comm.start, comm.end), compute)


def _exposed(comm: Comm, until: Ints, compute: Ints) -> Ints:
    """Exposed time of each row up to a moment inside it."""
    result = np.zeros(len(comm.start), np.int64)
    taken = compute
    for index in range(len(COMM_DIMS)):
        mine = np.flatnonzero(comm.dim == index)
        if not len(mine):
            continue
        mine = mine[np.argsort(comm.start[mine], kind="stable")]
        start, end = comm.start[mine], comm.end[mine]
        reach = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end[:-1])))
        own = np.minimum(np.maximum(start, reach), end)
        last = np.maximum(until[mine], own)
        result[mine] = (last - own) - iv.overlap_with(own, last, taken)
        taken = iv.merge(taken, iv.union(start, end))
    return result
