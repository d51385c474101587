"""Device work, one row per kernel, copy or set, classified: what ran, when, who launched it.

On a job without a device the rows are host compute and `gloo:*` communication instead. Where a job had a device but
the recording lacks it, there are no rows: unknown is not idle.
A null `launch_ns` means that nothing links the piece to a call: in flight from before the recording, or unlinked.

A piece of impossible duration (`_impossible`) is cut at its successor's start; `recorded_ns` keeps what was written.

Method: classes are decided per distinct name (`_classify`); steps by the launching call, else by the interval that
holds the start; operator, module, line and phase are those open when the launch was called (`_host`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._classes import classified
from diagnose.analyses._classify import CLASSES, UserPatterns, user_patterns
from diagnose.analyses._columns import Flags, Ints, codes, dense, dictionary, integers, label, lookup, take
from diagnose.analyses._host import HostStack
from diagnose.analyses._host_calls import callers
from diagnose.analyses._host_work import host_category, host_work
from diagnose.analyses._impossible import impossible
from diagnose.analyses._work import NEVER, Work, by_rank, device_work, side
from diagnose.schema import BOOL, INT32, INT64, LABEL, table

SCHEMA = table(
    "piece of device work (in CPU-only traces: of host compute or gloo communication)",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step it belongs to; null outside all steps"),
    ("device", INT32, "device index; null on the host"),
    ("stream", INT64, "stream; null on the host"),
    ("name", LABEL, "kernel name"),
    ("class", LABEL, "compute | comm | copy | unclassified"),
    (
        "category",
        LABEL,
        "finer label: gemm, attention, norm, elementwise, ..., all_reduce, dispatch, ..., memcpy_h2d, memset",
    ),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration, after impossible durations were cut"),
    ("recorded_ns", INT64, "duration as recorded; differs from dur_ns only where it was impossible"),
    ("launch_ns", INT64, "start of the launching runtime call; null where unlinked"),
    ("launch_end_ns", INT64, "end of the launching runtime call"),
    ("launch_process", INT64, "its process"),
    ("launch_thread", INT64, "its thread"),
    ("in_flight", BOOL, "launched before the recording began; null where launches were not recorded"),
    ("graph", BOOL, "launched by a CUDA / HIP graph"),
    ("op", LABEL, "innermost operator open at the launch"),
    ("phase", LABEL, "forward | backward | optimizer; null where nothing says"),
    ("module", LABEL, "nn.Module, FSDP unit or named range open at the launch"),
    ("source", LABEL, "innermost user source line open at the launch, where stacks were recorded"),
)

_GRAPH_LAUNCH = re.compile(r"(?i)graph_?launch")


def kernels(
    events: pa.Table,
    steps: pa.Table,
    device_args: pa.Table,
    op_args: pa.Table,
    calls: pa.Table,
    settings: pa.Table | None = None,
    files: pa.Table | None = None,
) -> pa.Table:
    """Work of every rank, in order of start within the rank."""
    patterns = user_patterns(settings)
    recorded = np.unique(integers(calls["event_id"], -1))
    found = []
    for rank, part in by_rank(events) if events.num_rows else ():
        work = device_work(part)
        mine = steps.filter(pc.equal(steps["rank"], rank))
        where = side(part, work, files)
        if where == "device":
            found.append(_device_rows(rank, part, work, mine, _Inputs(device_args, op_args, recorded, patterns)))
        elif where == "host":
            found.append(_host_rows(rank, part, mine, op_args))
    return pa.concat_tables([SCHEMA.empty(), *found]).unify_dictionaries().combine_chunks()


class _Inputs(NamedTuple):
    """What all ranks share."""

    device_args: pa.Table
    op_args: pa.Table
    recorded: Ints  # ids of events that carry a collective's record
    patterns: UserPatterns


def _device_rows(rank: int, events: pa.Table, work: Work, steps: pa.Table, inputs: _Inputs) -> pa.Table:
    launch_end = take(integers(events["ts_ns"]) + integers(events["dur_ns"]), work.launch, NEVER)
    process = take(integers(events["process"], NEVER), work.launch, NEVER)
    thread = take(integers(events["thread"], NEVER), work.launch, NEVER)
    host = HostStack(events, inputs.op_args)
    open_ = host.labels(host.at(process, thread, work.launch_ns))
    name = codes(events["name"])[work.row]
    graph = _graph_launched(events, work, inputs.device_args)
    step = _step_of(work, steps)
    length = work.end - work.start
    absurd, cut = impossible(work, name, step, steps, graph)
    kinds, categories = classified(events, work, name, open_["op"], inputs.recorded, inputs.patterns)
    linked = work.linked
    return SCHEMA.build(
        {
            "event_id": events["event_id"].take(work.row),
            "rank": np.full(len(name), rank, np.int32),
            "step": _nullable(step),
            "device": events["device"].take(work.row),
            "stream": events["stream"].take(work.row),
            "name": _compact(dictionary(events["name"]), name),
            "class": kinds,
            "category": categories,
            "ts_ns": work.start,
            "dur_ns": np.where(absurd, cut, length),
            "recorded_ns": length,
            "launch_ns": np.ma.array(work.launch_ns, mask=~linked),
            "launch_end_ns": np.ma.array(launch_end, mask=~linked),
            "launch_process": _nullable(process),
            "launch_thread": _nullable(thread),
            "in_flight": np.ma.array(work.in_flight, mask=~linked & (not work.mostly_linked)),
            "graph": graph,
            **open_,
        }
    )


def _nullable(values: Ints) -> np.ma.MaskedArray:
    return np.ma.array(values, mask=values == NEVER)


def _compact(texts: list[str], index: Ints) -> pa.Array:
    """LABEL column that holds only the texts in use."""
    used, place = dense(index, len(texts))
    return label([texts[i] for i in used.tolist()], place)


def _graph_launched(events: pa.Table, work: Work, device_args: pa.Table) -> Flags:
    by_name = np.array([bool(_GRAPH_LAUNCH.search(n)) for n in dictionary(events["name"])], bool)
    launched = take(codes(events["name"]), work.launch, len(by_name) - 1)
    nodes = device_args.filter(pc.greater(device_args["graph_node"], 0))
    in_node = lookup(np.unique(integers(nodes["event_id"])), integers(events["event_id"].take(work.row))) >= 0
    return by_name[launched] | in_node


def _step_of(work: Work, steps: pa.Table) -> Ints:
    """Number of each piece's step; NEVER outside all steps."""
    steps = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("ts_ns")
    if not steps.num_rows:
        return np.full(len(work.row), NEVER, np.int64)
    number, ts = integers(steps["step"]), integers(steps["ts_ns"])
    holder = _holder(work.start, ts, ts + integers(steps["dur_ns"]))
    if work.mostly_linked and not steps["host_ts_ns"].null_count:
        marks = integers(steps["host_ts_ns"])
        ends = np.append(marks[1:], marks[-1] + integers(steps["host_dur_ns"])[-1])
        issued = _holder(work.launch_ns, marks, ends)
        holder = np.where(work.linked, issued, np.where(work.in_flight, -1, holder))
    return take(number, holder, NEVER)


def _holder(moments: Ints, starts: Ints, ends: Ints) -> Ints:
    """Index of the interval that holds each moment; -1: none."""
    at = np.searchsorted(starts, moments, "right") - 1
    return np.where((at >= 0) & (moments < take(ends, at, NEVER)), at, -1)


def _host_rows(rank: int, events: pa.Table, steps: pa.Table, op_args: pa.Table) -> pa.Table:
    work = host_work(events)
    process, thread = (integers(events[c].take(work.row), NEVER) for c in ("process", "thread"))
    names = dictionary(events["name"])
    name = codes(events["name"])[work.row]
    caller = np.where(work.comm, callers(events, work.row), -1)
    seen_at = np.where(caller >= 0, caller, work.row)
    by, on = (integers(events[c].take(seen_at), NEVER) for c in ("process", "thread"))
    called_ns = np.where(caller >= 0, integers(events["ts_ns"])[caller], work.start)
    host = HostStack(events, op_args)
    open_ = host.labels(host.at(by, on, called_ns))
    valid = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("ts_ns")
    ts = integers(valid["ts_ns"])
    step = take(integers(valid["step"]), _holder(work.start, ts, ts + integers(valid["dur_ns"])), NEVER)
    used, place = dense(name, len(names))
    category = [host_category(names[i]) for i in used.tolist()]
    length = work.end - work.start
    return SCHEMA.build(
        {
            "event_id": events["event_id"].take(work.row),
            "rank": np.full(len(name), rank, np.int32),
            "step": _nullable(step),
            "name": _compact(names, name),
            "class": label(list(CLASSES), np.where(work.comm, CLASSES.index("comm"), CLASSES.index("compute"))),
            "category": label(category, place),
            "ts_ns": work.start,
            "dur_ns": length,
            "recorded_ns": length,
            "launch_process": process,
            "launch_thread": thread,
            "in_flight": np.zeros(len(name), bool),
            "graph": np.zeros(len(name), bool),
            **open_,
        }
    )
