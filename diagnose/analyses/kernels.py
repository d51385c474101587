"""Device work, one row per kernel, copy or set, classified: what ran, when, who launched it.

On a job without a device the rows are host compute and `gloo:*` communication instead. Where a job had a device but
the recording lacks it, there are no rows: unknown is not idle.
A null `launch_ns` means that nothing links the piece to a call: in flight from before the recording, or unlinked.

A duration is impossible when the piece runs well over its successor on the same stream (past its end, or for half of
its own length) and also overruns its step or exceeds ten times the median of its name: such a piece is cut at the
successor's start, and `recorded_ns` keeps what was written. Small overlaps are real (programmatic dependent launch).

Method: classes are decided per distinct name (`_classify`); steps by the launching call, else by the interval that
holds the start; operator, module, line and phase are those open when the launch was called (`_host`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._classify import (
    CLASSES,
    UserPatterns,
    computes,
    copy_category,
    is_comm_operator,
    label_of_name,
    operation_of_name,
    user_patterns,
)
from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, label, lookup, take
from diagnose.analyses._host import HostStack
from diagnose.analyses._host_work import host_work
from diagnose.analyses._operations import operation
from diagnose.analyses._work import NEVER, Work, by_rank, device_work, next_on_lane, of_kind, serial_ends, side
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

MEDIANS = 10
"""A duration above so many medians of its name is not believed where it also runs over its successor."""
ROUNDING_NS = 2_000
"""Old recordings hold whole microseconds: overlaps up to this are rounding."""
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
    impossible, cut = _impossible(work, name, step, steps, graph)
    kinds, categories = _classified(events, work, name, open_["op"], inputs)
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
            "dur_ns": np.where(impossible, cut, length),
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
    used, place = np.unique(index, return_inverse=True)
    return label([texts[i] for i in used.tolist()], place.astype(np.int64))


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


def _impossible(work: Work, name: Ints, step: Ints, steps: pa.Table, graph: Flags) -> tuple[Flags, Ints]:
    """(which durations are impossible, ns from each start to its successor's)."""
    following = next_on_lane(work)
    length = work.end - work.start
    next_start, next_end = take(work.start, following, NEVER), take(work.end, following, NEVER)
    overlap = np.where(following >= 0, work.end - next_start, 0)
    runs_over = (overlap > 0) & ((work.end > next_end) | (2 * overlap >= length))
    if not runs_over.any():
        return runs_over, length
    beyond = work.end > _step_end(work, step, steps)
    beyond &= (overlap > ROUNDING_NS) & ~graph  # branches of a graph may share a stream's name
    return runs_over & (beyond | (length > MEDIANS * _median_of_name(name, length))), next_start - work.start


def _step_end(work: Work, step: Ints, steps: pa.Table) -> Ints:
    """End of each piece's step; of the recording where it has none."""
    steps = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("step")
    place = lookup(integers(steps["step"]), step)
    ends = integers(steps["ts_ns"]) + integers(steps["dur_ns"])
    return take(ends, place, int(serial_ends(work).max()))


def _median_of_name(name: Ints, length: Ints) -> Ints:
    """Lower median of the durations of each piece's name."""
    order = np.lexsort((length, name))
    _, first, inverse, count = np.unique(name[order], return_index=True, return_inverse=True, return_counts=True)
    result = np.empty(len(name), np.int64)
    result[order] = length[order][first + (count - 1) // 2][inverse]
    return result


def _classified(events: pa.Table, work: Work, name: Ints, op: pa.Array, inputs: _Inputs) -> tuple[pa.Array, pa.Array]:
    """Columns `class` and `category`."""
    names = dictionary(events["name"])
    kind_names, kind = dictionary(events["kind"]), codes(events["kind"])[work.row]
    texts: list[str] = []
    place_of: dict[str, int] = {}
    classes, places = np.empty(len(name), np.int64), np.empty(len(name), np.int64)
    documented = _documented(events, work, inputs.recorded)
    pair = kind * len(names) + name
    for code, rows in _groups(pair):
        text, sort = names[code % len(names)], kind_names[code // len(names)]
        found = _label(text, sort, documented[rows], op, rows, inputs.patterns)
        comm = CLASSES.index("comm")
        classes[rows] = CLASSES.index(found[0])
        places[rows] = place_of.setdefault(found[1], len(place_of))
        own = rows[documented[rows]]
        if found[0] not in ("comm", "copy") and len(own):
            classes[own], places[own] = comm, place_of.setdefault(operation_of_name(text), len(place_of))
    texts = list(place_of)
    return label(list(CLASSES), classes), label(texts, places)


def _groups(values: Ints) -> list[tuple[int, Ints]]:
    """(value, rows that hold it) per distinct value."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    return list(zip(distinct.tolist(), np.split(order, first[1:]), strict=True))


def _label(
    text: str, kind: str, documented: Flags, op: pa.Array, rows: Ints, patterns: UserPatterns
) -> tuple[str, str]:
    """(class, category) that the rows of one name and kind share."""
    if kind in ("memcpy", "memset"):
        category = copy_category(text, kind == "memset")
        peer = category == "memcpy_p2p" and all(map(is_comm_operator, _operators(op, rows)))
        return ("comm", "memcpy_p2p") if peer and len(rows) and _operators(op, rows) else ("copy", category)
    if kind == "comm":
        return "comm", operation_of_name(text)
    found = label_of_name(text, patterns)
    if found.kind != "unclassified":
        return found
    if documented.any():
        return "comm", operation_of_name(text)
    operators = _operators(op, rows)
    if operators and all(o == "record_param_comms" or o.startswith("nccl:") for o in operators):
        return "comm", operation_of_name(text)
    return ("compute", "other") if computes(text, operators) else ("unclassified", "unclassified")


def _operators(op: pa.Array, rows: Ints) -> list[str]:
    """Distinct operators open at the launches of the rows."""
    return [o for o in op.take(pa.array(rows)).unique().to_pylist() if o]


def _documented(events: pa.Table, work: Work, recorded: Ints) -> Flags:
    """Pieces that carry a collective's record, or are linked to an operator that is one."""
    own = lookup(recorded, integers(events["event_id"].take(work.row))) >= 0
    ops = of_kind(events, "op")
    names = np.array([n == "record_param_comms" for n in dictionary(events["name"])], bool)
    records = ops[names[codes(events["name"])[ops]]] if len(ops) else ops
    linked = events["external_id"].take(records) if len(records) else None
    if linked is None or linked.null_count == len(linked):
        return own
    known = np.unique(integers(linked.drop_null()))
    external = events["external_id"].take(work.row)
    return own | ((lookup(known, integers(external, NEVER)) >= 0) & flags(external.is_valid()))


def _host_rows(rank: int, events: pa.Table, steps: pa.Table, op_args: pa.Table) -> pa.Table:
    work = host_work(events)
    process, thread = (integers(events[c].take(work.row), NEVER) for c in ("process", "thread"))
    names = dictionary(events["name"])
    name = codes(events["name"])[work.row]
    host = HostStack(events, op_args)
    open_ = host.labels(host.at(process, thread, work.start))
    valid = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("ts_ns")
    ts = integers(valid["ts_ns"])
    step = take(integers(valid["step"]), _holder(work.start, ts, ts + integers(valid["dur_ns"])), NEVER)
    used, place = np.unique(name, return_inverse=True)
    category = [_host_category(names[i]) for i in used.tolist()]
    length = work.end - work.start
    return SCHEMA.build(
        {
            "event_id": events["event_id"].take(work.row),
            "rank": np.full(len(name), rank, np.int32),
            "step": _nullable(step),
            "name": _compact(names, name),
            "class": label(list(CLASSES), np.where(work.comm, CLASSES.index("comm"), CLASSES.index("compute"))),
            "category": label(category, place.astype(np.int64)),
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


_HOST_CATEGORIES = (
    (re.compile(r"^(gloo|mpi):"), ""),
    (re.compile(r"(^|::)_?(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|einsum)\b"), "gemm"),
    (re.compile(r"conv"), "conv"),
    (re.compile(r"attention"), "attention"),
    (re.compile(r"norm"), "norm"),
    (re.compile(r"embedding"), "embedding"),
    (re.compile(r"softmax|loss"), "softmax_loss"),
)


def _host_category(name: str) -> str:
    """Category of a host operator or communication range by its name."""
    for pattern, category in _HOST_CATEGORIES:
        if pattern.search(name):
            return category or operation(name)
    return "elementwise" if name.startswith("aten::") else "other"
