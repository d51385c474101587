"""Host calls that blocked until the device had finished, and the idle that followed.

A blocked host costs nothing while the device works; the cost is the idle after the device ran dry, which lasts until
the host, awake again, has launched something. So `dur_ns` is no loss, `idle_ns` is. A trailing synchronise with
nothing to launch after it has none. Only threads that launch device work count, where launches are known.
Method: the idle pieces with cause `sync` each go to one call: the one that returned in it, else the one still open
at its start, else the last that had returned before.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, label, take
from diagnose.analyses._host import HostStack
from diagnose.analyses._host_causes import synchronises
from diagnose.analyses._nesting import Nesting, Threads
from diagnose.analyses._work import by_rank, of_kind, of_rank
from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "blocking host call",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("name", LABEL, "cudaStreamSynchronize, cudaMemcpy, ..."),
    ("op", LABEL, "operator that held it (aten::item, ...); null where none"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "how long the host was blocked"),
    ("idle_ns", INT64, "device idle it caused (cause `sync`)"),
    ("module", LABEL, "module or named range"),
    ("source", LABEL, "source line, where recorded"),
)

_ASKING = (
    "item", "is_nonzero", "nonzero", "equal", "allclose", "masked_select", "unique", "_unique2", "unique_dim",
    "unique_consecutive", "to", "cpu", "repeat_interleave", "bincount", "tolist", "index_put_",
)  # fmt: skip
"""ATen operators that make the host wait, as users know them: named rather than what they call inside."""
_BEFORE = np.iinfo(np.int64).min


def syncs(events: pa.Table, kernels: pa.Table, idle: pa.Table, steps: pa.Table) -> pa.Table:
    """One row per blocking call of every rank with device work, in order of start."""
    on_device = flags(kernels["device"].is_valid()) | flags(kernels["stream"].is_valid())
    working = np.unique(integers(kernels["rank"], -1)[on_device])
    parts = [
        _of_rank(rank, mine, of_rank(kernels, rank), of_rank(idle, rank), of_rank(steps, rank))
        for rank, mine in (by_rank(events) if len(working) else ())
        if rank in working
    ]
    return pa.concat_tables([SCHEMA.empty(), *parts]).unify_dictionaries()


def _of_rank(rank: int, events: pa.Table, kernels: pa.Table, idle: pa.Table, steps: pa.Table) -> pa.Table:
    candidates = synchronises(events, kernels)
    calls = _calls(events, candidates.row)
    rows, start, end = (column[calls] for column in candidates)
    if not len(rows):
        return SCHEMA.empty()
    order = np.argsort(start, kind="stable")
    rows, start, end = rows[order], start[order], end[order]
    host = HostStack(events)
    where = events.select(["process", "thread"]).take(pa.array(rows))
    found = host.labels(host.at(where["process"], where["thread"], start))
    step = _step(steps, start)
    return SCHEMA.build(
        {
            "rank": np.full(len(rows), rank, np.int32),
            "step": np.ma.masked_array(step, mask=step == _BEFORE),
            "name": label(dictionary(events["name"]), codes(events["name"])[rows]),
            "op": _asking(events, rows, found["op"]),
            "ts_ns": start,
            "dur_ns": end - start,
            "idle_ns": _idle(start, end, idle),
            "module": found["module"],
            "source": found["source"],
        }
    )


def _calls(events: pa.Table, rows: Ints) -> Flags:
    """Which candidates are calls; operators stand in for them where the recording has no runtime calls at all."""
    runtime = of_kind(events, "runtime")
    if len(runtime):
        return np.isin(rows, runtime)
    names = np.array([name == "aten::item" for name in dictionary(events["name"])], dtype=bool)
    item = names[codes(events["name"])[rows]]
    return item if item.any() else np.ones(len(rows), dtype=bool)  # aten::item holds aten::_local_scalar_dense


def _idle(start: Ints, end: Ints, idle: pa.Table) -> Ints:
    """Idle of cause `sync` per call."""
    mine = idle.filter(pa.array(_is(idle["cause"], "sync")))
    first, length = integers(mine["ts_ns"]), integers(mine["dur_ns"])
    order = np.argsort(end, kind="stable")
    returned = end[order]
    at = np.searchsorted(returned, first, side="left")
    following = np.minimum(at, len(order) - 1)
    inside = (at < len(order)) & (returned[following] <= first + length)
    open_then = (at < len(order)) & (start[order][following] <= first)
    owner = order[np.where(inside | open_then, following, np.maximum(at - 1, 0))]
    caused = np.zeros(len(start), dtype=np.int64)
    np.add.at(caused, owner, length)
    return caused


def _asking(events: pa.Table, rows: Ints, innermost: pa.Array) -> pa.Array:
    """The operator that asked for the result, where one is known to; else the innermost."""
    names = dictionary(events["name"])
    wanted = np.array([name.removeprefix("aten::") in _ASKING and name.startswith("aten::") for name in names], bool)
    ops = of_kind(events, "op")
    ops = ops[wanted[codes(events["name"])[ops]]]
    threads = Threads(events["process"], events["thread"])
    ops = ops[threads.of_event[ops] >= 0]
    start = integers(events["ts_ns"])
    nest = Nesting(threads.of_event[ops], start[ops], (start + integers(events["dur_ns"]))[ops], ops)
    holder = nest.innermost(threads.of_event[rows], start[rows])
    inner = pa.chunked_array([innermost])
    texts = [*names, *dictionary(inner)]
    other = codes(inner)
    return label(texts, np.where(holder >= 0, take(codes(events["name"]), holder, -1), _shifted(other, len(names))))


def _shifted(index: Ints, by: int) -> Ints:
    return np.where(index >= 0, index + by, -1)


def _step(steps: pa.Table, moments: Ints) -> Ints:
    """Step whose mark on the host holds each moment (its device interval where it has no mark); else the lowest int."""
    start = np.where(steps["host_ts_ns"].is_valid(), integers(steps["host_ts_ns"]), integers(steps["ts_ns"]))
    length = np.where(steps["host_ts_ns"].is_valid(), integers(steps["host_dur_ns"]), integers(steps["dur_ns"]))
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], moments, side="right") - 1
    row = take(order, at, -1)
    return np.where(moments < take(start + length, row, _BEFORE), take(integers(steps["step"]), row, _BEFORE), _BEFORE)


def _is(column: pa.ChunkedArray, text: str) -> Flags:
    wanted = np.array([value == text for value in dictionary(column)], dtype=bool)
    return np.asarray(wanted[codes(column)], dtype=bool)
