"""All-to-alls of expert parallelism on every rank: which way tokens went, how long, how much, and under what.

`to` the experts (dispatch forward, and gradients backward) or `back` (combine). Libraries of expert parallelism
(DeepEP) say it in the kernel's name; plain all-to-alls go to the experts and back in turn. Small ones beside them
(counts, probabilities: under a sixteenth of the rank's typical message, or whole numbers) are `extra` and carry no
tokens. Which call is one is told by its group's dimension; in a job with experts an all-to-all of a group that nothing
names is taken for one, unless context parallelism is in use, which exchanges, too.
Bytes are messages, the rank's own share included. `tp_overlap_ns` is time in which tensor- or context-parallel
collectives of the same rank ran as well: they share links and, often, processors.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers, label, rows_of
from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "all-to-all of one rank that carries tokens to experts or back",
    ("event_id", INT64, "row of events, as in collectives"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("place", INT32, "n-th exchange with tokens of this rank and step, from 0; null for extra ones"),
    ("way", LABEL, "to: to the experts | back | extra: counts or probabilities, no tokens"),
    ("phase", LABEL, "forward | backward; null where nothing says"),
    ("match", INT64, "call instance, as in collectives; null: not matched"),
    ("group", LABEL, "process group name; null where unknown"),
    ("group_size", INT32, "ranks in it; null where unknown"),
    ("dtype", LABEL, "element type; null where unknown"),
    ("sent_bytes", INT64, "message out, own share included; null where unknown"),
    ("received_bytes", INT64, "message in; null where unknown"),
    ("in_splits", LABEL, "JSON text of what goes to each rank of the group; null where even, cut or unknown"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration: waiting and transfer"),
    ("wait_ns", INT64, "waiting for the last rank; null until matched"),
    ("exposed_ns", INT64, "not hidden under compute"),
    ("exposed_wait_ns", INT64, "of it, waiting; null until matched"),
    ("tp_overlap_ns", INT64, "of dur_ns, under tensor- or context-parallel collectives of this rank"),
)
_OPS = ("all_to_all", "dispatch", "combine")
WAYS = ("to", "back", "extra")
TO, BACK, EXTRA = range(3)
_SMALL = 16
_NOTICE = re.compile(r"(?i)notify|layout|clean_|barrier")
_WHOLE = ("int64", "int32", "int16", "bool")


def exchanges(
    moe_setup: pa.Table,
    calls_on_device: pa.Table | None = None,
    collectives: pa.Table | None = None,
    matches: pa.Table | None = None,
    kernels: pa.Table | None = None,
) -> pa.Table:
    """Exchanges of every rank, in order of start within the rank; none without traces, or without experts."""
    if calls_on_device is None or collectives is None or matches is None or not moe_setup.num_rows:
        return SCHEMA.empty()
    chosen = _chosen(calls_on_device)
    if not chosen.any():
        return SCHEMA.empty()
    mask = pa.array(chosen)
    mine, seen, met = calls_on_device.filter(mask), collectives.filter(mask), matches.filter(mask)
    rank, step = integers(mine["rank"]), integers(mine["step"], -1)
    way, place = _ways(mine, rank, step, _notices(mine, kernels))
    columns: dict[str, Any] = {name: mine[name] for name in SCHEMA.arrow.names if name in mine.column_names}
    columns |= {name: seen[name] for name in ("match", "wait_ns", "exposed_wait_ns")}
    return SCHEMA.build(
        columns
        | {
            "place": np.ma.array(place.astype(np.int32), mask=place < 0),
            "way": label(list(WAYS), way),
            "sent_bytes": mine["size_bytes"],
            "group_size": pc.coalesce(mine["group_size"], met["expected_count"].cast(pa.int32())),
            "tp_overlap_ns": _overlap(calls_on_device, mine, rank),
        }
    )


def _chosen(calls: pa.Table) -> Flags:
    named = {name: np.array([n == name for n in dictionary(calls["op"])], bool)[codes(calls["op"])] for name in _OPS}
    dims = dictionary(calls["dim"])
    dim = codes(calls["dim"])
    expert = np.array([d == "ep" for d in dims], bool)[dim]
    library = named["dispatch"] | named["combine"]
    found: Flags = library | (named["all_to_all"] & expert)
    if not (named["all_to_all"] & expert).any():
        context = np.array([d == "cp" for d in dims], bool)[dim].any()
        unnamed = np.array([d == "other" for d in dims], bool)[dim]
        found |= named["all_to_all"] & unnamed & (not context)
    return found


def _notices(calls: pa.Table, kernels: pa.Table | None) -> Flags:
    """Kernels of a library that carry counts and flags, not tokens (`notify_dispatch`, `get_dispatch_layout`)."""
    if kernels is None:
        return np.zeros(calls.num_rows, bool)
    said = np.array([bool(_NOTICE.search(name)) for name in dictionary(kernels["name"])], bool)
    at = rows_of(integers(kernels["event_id"]), integers(calls["event_id"]))
    found: Flags = (at >= 0) & said[codes(kernels["name"])[np.maximum(at, 0)]]
    return found


def _ways(calls: pa.Table, rank: Ints, step: Ints, notice: Flags) -> tuple[Ints, Ints]:
    """(index in WAYS, place among the exchanges with tokens of the rank and step; -1) of every row."""
    size = np.maximum(integers(calls["size_bytes"], -1), integers(calls["received_bytes"], -1))
    small = notice | np.array([d in _WHOLE for d in dictionary(calls["dtype"])], bool)[codes(calls["dtype"])]
    for one in np.unique(rank).tolist():
        large = (rank == one) & (size >= 0) & ~small
        if large.any():
            small |= large & (size * _SMALL < np.max(size[large]))
    order = np.lexsort((integers(calls["ts_ns"]), step, rank))
    counted = order[~small[order]]
    place = np.full(len(rank), -1, np.int64)
    if len(counted):
        fresh = np.flatnonzero(np.r_[True, (np.diff(rank[counted]) != 0) | (np.diff(step[counted]) != 0)])
        lengths = np.diff(np.r_[fresh, len(counted)])
        place[counted] = np.arange(len(counted)) - np.repeat(fresh, lengths)
    names = dictionary(calls["op"])
    said = np.array([{"dispatch": TO, "combine": BACK}.get(n, -1) for n in names], np.int64)[codes(calls["op"])]
    return np.where(small, EXTRA, np.where(said >= 0, said, place % 2)), place


def _overlap(every: pa.Table, mine: pa.Table, rank: Ints) -> Ints:
    """Time of each exchange under tensor- or context-parallel collectives of its rank."""
    start, length = integers(mine["ts_ns"]), integers(mine["dur_ns"])
    result = np.zeros(len(rank), np.int64)
    inner = every.filter(pc.is_in(every["dim"].cast(pa.string()), pa.array(["tp", "cp"])))
    others, begin, lasted = integers(inner["rank"]), integers(inner["ts_ns"]), integers(inner["dur_ns"])
    for one in np.unique(others).tolist():
        busy = iv.union(begin[others == one], (begin + lasted)[others == one])
        rows = np.flatnonzero(rank == one)
        result[rows] = iv.overlap_with(start[rows], (start + length)[rows], busy)
    return result
