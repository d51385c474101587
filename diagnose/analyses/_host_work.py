"""Work of a job without a device: operators of the training threads compute, `gloo:*` ranges communicate.

Waiting inside an operator is not computing: the intervals of `c10d::*` and `_c10d_functional::*` operators (their
`wait_tensor` blocks), of communication ranges on the same thread and of blocking waits are taken out of the operators
around them. In the hooks of FSDP (`FSDP::*` ranges), which run inside the autograd engine's operators, only operators
of their own compute: the rest waits for a collective. Threads of the communication backend and of data loaders do not
train, so their operators do not count.

Method: on each training thread the innermost open operator owns each moment; its communication is cut out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Ints, codes, dictionary, encode, integers
from diagnose.analyses._nesting import Nesting
from diagnose.analyses._operations import operation
from diagnose.analyses._work import of_kind

_WAITS = re.compile(
    r"^(c10d::|_c10d_functional|c10d_functional::|gloo:|mpi:|record_param_comms$)|(^|::)wait(_tensor|_all)?$"
)
_COMMUNICATION = re.compile(r"^(gloo|mpi):")
_AUTOGRAD = re.compile(r"^autograd::engine::evaluate_function")
_HOOKS = re.compile(r"^FSDP::|^FullyShardedDataParallel\.")
_NODES = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")


class HostWork(NamedTuple):
    """Pieces of host work: row of the rank's events that owns it, times, and whether it communicates."""

    row: Ints
    start: Ints
    end: Ints
    comm: np.ndarray


def host_work(events: pa.Table) -> HostWork:
    """Compute and communication of one rank's host events, in order of start."""
    names = dictionary(events["name"])
    name = codes(events["name"])
    start = integers(events["ts_ns"])
    end = start + integers(events["dur_ns"])
    thread = _threads(events)
    ops, ranges = of_kind(events, "op"), of_kind(events, "annotation")
    communicates = _named(names, _COMMUNICATION)[name]
    comm = np.flatnonzero(communicates & np.isin(np.arange(len(name)), np.concatenate((ops, ranges))))
    ops = ops[~communicates[ops]]  # PyTorch before 1.12 records `gloo:*` as operators
    waits = np.concatenate((ops, ranges))
    waits = waits[_named(names, _WAITS)[name[waits]]]
    hooks = ranges[_named(names, _HOOKS)[name[ranges]]]
    inner = ops[~_named(names, _NODES)[name[ops]]]
    pieces = [
        _compute(ops, waits, thread, start, end, one, _idle_hooks(hooks, inner, thread == one, start, end))
        for one in _training_threads(ops, name, names, thread, comm, end - start)
    ]
    pieces.append((comm, start[comm], end[comm]))
    row, first, last = (np.concatenate(column) for column in zip(*pieces, strict=True))
    is_comm = np.arange(len(row)) >= len(row) - len(comm)
    order = np.argsort(first, kind="stable")
    return HostWork(row[order], first[order], last[order], is_comm[order])


def _named(names: list[str], pattern: re.Pattern[str]) -> np.ndarray:
    return np.array([bool(pattern.search(n)) for n in names], bool)


def _threads(events: pa.Table) -> Ints:
    _, process = encode(events["process"])
    distinct, thread = encode(events["thread"])
    return (process + 1) * (len(distinct) + 1) + thread + 1


def _training_threads(ops: Ints, name: Ints, names: list[str], thread: Ints, comm: Ints, length: Ints) -> list[int]:
    """The thread with most operator time among those not of the backend, and the threads of the autograd engine."""
    if not len(ops):
        return []
    distinct, place = np.unique(thread[ops], return_inverse=True)
    busy = np.bincount(place, weights=length[ops].astype(float))
    nodes = np.bincount(place, weights=_named(names, _AUTOGRAD)[name[ops]].astype(float)) > 0
    main = int(np.argmax(busy))
    backend = np.isin(distinct, thread[comm])
    backend[main] = False
    return [int(t) for i, t in enumerate(distinct) if i == main or (nodes[i] and not backend[i])]


def _idle_hooks(hooks: Ints, inner: Ints, here: np.ndarray, start: Ints, end: Ints) -> Ints:
    """Time of one thread in hooks without an operator of their own."""
    hooks, inner = hooks[here[hooks]], inner[here[inner]]
    return iv.subtract(iv.union(start[hooks], end[hooks]), iv.union(start[inner], end[inner]))


def _compute(
    ops: Ints, waits: Ints, thread: Ints, start: Ints, end: Ints, one: int, idle: Ints
) -> tuple[Ints, Ints, Ints]:
    """(owning operator, start, end) of the computing pieces of one thread, outside `idle`."""
    mine, waiting = ops[thread[ops] == one], waits[thread[waits] == one]
    busy = iv.subtract(iv.union(start[mine], end[mine]), iv.union(start[waiting], end[waiting]))
    busy = iv.subtract(busy, idle)
    edges = np.concatenate((start[mine], end[mine]))
    pieces = iv.split_at(busy, edges)
    nest = Nesting(np.zeros(len(mine), np.int64), start[mine], end[mine], mine)
    owner = nest.innermost(np.zeros(len(pieces), np.int64), pieces[:, 0])
    return _joined(owner, pieces)


def _joined(owner: Ints, pieces: Ints) -> tuple[Ints, Ints, Ints]:
    """Neighbouring pieces of one owner as one."""
    if not len(pieces):
        return owner, pieces[:, 0], pieces[:, 1]
    new = np.ones(len(pieces), bool)
    new[1:] = (owner[1:] != owner[:-1]) | (pieces[1:, 0] != pieces[:-1, 1])
    at = np.flatnonzero(new)
    return owner[at], pieces[at, 0], pieces[np.append(at[1:] - 1, len(pieces) - 1), 1]


_HOST_CATEGORIES = (
    (re.compile(r"^(gloo|mpi):"), ""),
    (re.compile(r"(^|::)_?(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|einsum)\b"), "gemm"),
    (re.compile(r"conv"), "conv"),
    (re.compile(r"attention"), "attention"),
    (re.compile(r"norm"), "norm"),
    (re.compile(r"embedding"), "embedding"),
    (re.compile(r"softmax|loss"), "softmax_loss"),
)


def host_category(name: str) -> str:
    """Category of a host operator or communication range by its name."""
    for pattern, category in _HOST_CATEGORIES:
        if pattern.search(name):
            return category or operation(name)
    return "elementwise" if name.startswith("aten::") else "other"
