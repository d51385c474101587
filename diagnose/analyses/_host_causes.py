"""Host events that can keep the device waiting: data loading, garbage collection, device memory calls, synchronises.

Only threads that launch device work count where launches are known: a loader's or a watchdog's own thread may sleep
as long as it likes. The events say what the host was doing, not that the device waited for it; `idle` decides that.

Sources of the names: torch.utils.data, torch.profiler (1.8 to 2.13), CUDA and HIP runtime and driver API.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers
from diagnose.analyses._work import LINKED_SHARE, NEVER, of_kind

_INPUT = re.compile(
    r"^enumerate\(|DataLoader.*__next__|(?i:data_?loader).*: __(?:next|iter)__$"
    r"|dataloader\.py\(\d+\): (?:__next__|_next_data)"
    r"|(?i:(?:data|loader|dali|dataset|iterator|stream)[^/]*\.pyx?\(\d+\): (?:__next__|get_batch|next_batch|next))"
    r"|(?i:(?:^|[^a-z])(?:data_?load(?:er|ing)?|(?:get|next|load|fetch|read)_?(?:batch|data|input)s?|batch_(?:generator|sampler)"
    r"|data_?iter(?:ator)?|input_?pipeline|prefetch(?:er)?_next)(?:[^a-z]|$))"
    r"|(?i:(?:^|[^a-z_])next ?\([^)]*(?:data|batch|load|iter|train|sampl))"
)
_GC = re.compile(
    r"(?i)(?:^|[^a-z])gc(?:[^a-z]|\.)*collect|built-in function collect|python[ _]gc|garbage[ _]collect|^gc$"
)
_ALLOC = re.compile(
    r"^(?:cuda|hip)(?:Ext)?(?:Malloc|Free|HostAlloc|HostMalloc|FreeHost|HostFree|MallocHost|HostRegister|HostUnregister)"
    r"(?!\w*Async)"
    r"|^(?:cu|hip)Mem(?:Create|Map|Unmap|SetAccess|AddressReserve|AddressFree|Release|Alloc|Free|HostAlloc)(?!\w*Async)"
)
_SYNC = re.compile(
    r"^(?:cuda|hip)(?:Device|Stream|Event|Thread|Ctx)Synchronize|^(?:cu|hip)(?:Ctx|Stream|Event)Synchronize"
    r"|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|DtoD|WithStream)?(?:_v2|_ptds)?$|^cuMemcpy(?:DtoH|HtoD)(?:_v\d)?$"
)
_SYNC_OPS = re.compile(r"^aten::(?:item|_local_scalar_dense)$")


class Ranges(NamedTuple):
    """Host events of one cause: row of the rank's events, start, end."""

    row: Ints
    start: Ints
    end: Ints


class HostCauses(NamedTuple):
    """Candidate events per cause."""

    input: Ranges
    gc: Ranges
    alloc: Ranges
    sync: Ranges


def host_causes(events: pa.Table, kernels: pa.Table) -> HostCauses:
    """Candidates among one rank's events; `kernels` of the rank tell which threads launch."""
    chosen = _Chooser(events, kernels)
    ranges = ("annotation", "python", "op")
    return HostCauses(
        chosen(_INPUT, *ranges),
        chosen(_GC, *ranges),
        chosen(_ALLOC, "runtime"),
        _synchronises(chosen),
    )


def synchronises(events: pa.Table, kernels: pa.Table) -> Ranges:
    """The `sync` candidates alone."""
    return _synchronises(_Chooser(events, kernels))


def _synchronises(chosen: _Chooser) -> Ranges:
    return _joined(chosen(_SYNC, "runtime"), chosen(_SYNC_OPS, "op"))


class _Chooser:
    """Rows by name, kind and thread."""

    def __init__(self, events: pa.Table, kernels: pa.Table) -> None:
        self._events, self._names, self._name = events, dictionary(events["name"]), codes(events["name"])
        pairs = kernels.select(["launch_process", "launch_thread"]).group_by(["launch_process", "launch_thread"])
        known = [(row["launch_process"], row["launch_thread"]) for row in pairs.aggregate([]).to_pylist()]
        linked = kernels.num_rows - kernels["launch_ns"].null_count
        self._launching = [p for p in known if None not in p] if linked >= LINKED_SHARE * kernels.num_rows else []

    def __call__(self, pattern: re.Pattern[str], *kinds: str) -> Ranges:
        rows = of_kind(self._events, *kinds)
        wanted = np.array([bool(pattern.search(n)) for n in self._names], bool)
        rows = rows[wanted[self._name[rows]]]
        part = self._events.select(["process", "thread", "ts_ns", "dur_ns"]).take(rows)
        start = integers(part["ts_ns"])
        end = start + integers(part["dur_ns"])
        if not self._launching:
            return Ranges(rows, start, end)
        process, thread = integers(part["process"], NEVER), integers(part["thread"], NEVER)
        keep = np.zeros(len(rows), bool)
        for p, t in self._launching:
            keep |= (process == p) & (thread == t)
        return Ranges(rows[keep], start[keep], end[keep])


def _joined(*several: Ranges) -> Ranges:
    columns = [np.concatenate(column) for column in zip(*several, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    return Ranges(*(column[order] for column in columns))
