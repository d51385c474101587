"""Communication as it ran on each rank by itself, with what was said about it, how much was hidden, and why not more.

Nothing here looks at another rank: a duration holds the waiting for the last peer as well as the transfer, and only
`collectives` tells them apart. A null size or group is unknown, not zero. `exposed_ns` is the time that the partition
gives to the row, so rows sum to the partition's communication parts.

Method: records per kernel (`_records`), exposure by interval algebra (`_partition`), reasons from the timeline
(`_blocked`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.analyses._blocked import REASONS, blocked_by
from diagnose.analyses._columns import Ints, codes, dictionary, integers, label, lookup, take
from diagnose.analyses._host_exchanges import Said, host_exchanges
from diagnose.analyses._operations import VOCABULARY, code
from diagnose.analyses._partition import Comm, busy_set, exposed_ns, of_class
from diagnose.analyses._records import EVIDENCE, Records, records
from diagnose.analyses._work import NEVER, by_rank
from diagnose.schema import COMM_DIMS, INT32, INT64, LABEL, UINT64, table

SCHEMA = table(
    "communication kernel of one rank (in CPU-only traces: gloo work)",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("group", LABEL, "process group name; null where unknown"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("seq", INT64, "sequence number in the group"),
    ("comm_id", UINT64, "key shared by all ranks of this call"),
    ("op", LABEL, "normalised operation; p2p for send/recv kernels; unknown"),
    ("direction", LABEL, "send | recv, where the record of a p2p call says"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("dtype", LABEL, "element type; null where unknown"),
    ("group_size", INT32, "ranks; null where unknown"),
    ("peer", INT32, "peer or root, where recorded"),
    ("in_splits", LABEL, "JSON text of the split sizes; null when even or unknown"),
    ("out_splits", LABEL, "as in_splits, of what this rank receives"),
    ("received_bytes", INT64, "of an all-to-all: what this rank receives, its own part included; null where unknown"),
    ("stream", INT64, "stream"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration: waiting for peers and transfer together"),
    ("hidden_ns", INT64, "of it, under compute of the same rank"),
    ("exposed_ns", INT64, "of it, in the partition: no compute, no communication of a dimension with precedence"),
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

_EXPERT_OPS = ("dispatch", "combine")
"""Operations of expert-parallel libraries, which state their dimension themselves."""
DIRECTIONS = ("send", "recv")


def calls_on_device(
    kernels: pa.Table,
    calls: pa.Table,
    groups: pa.Table,
    steps: pa.Table,
    events: pa.Table,
    op_args: pa.Table | None = None,
) -> pa.Table:
    """Every communication kernel of every rank, in order of start within the rank."""
    found = [SCHEMA.empty()]
    for rank, part in by_rank(events) if kernels.num_rows else ():
        mine = kernels.filter(pc.equal(kernels["rank"], rank))
        if bool(of_class(mine, "comm").any()):
            said = calls.filter(pc.equal(calls["rank"], rank))
            own = _of_rank(rank, mine, said, groups, steps.filter(pc.equal(steps["rank"], rank)), part)
            found.append(own if op_args is None else _with_operators(own, part, op_args))
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def _with_operators(own: pa.Table, events: pa.Table, op_args: pa.Table) -> pa.Table:
    """Host all-to-alls with what their operators say of sizes."""
    said = host_exchanges(own, events, op_args)
    if not said:
        return own
    for name in Said._fields:
        values = own[name].to_pylist()
        for row, one in said.items():
            values[row] = getattr(one, name)
        at = own.column_names.index(name)
        own = own.set_column(at, own.schema.field(at), pa.array(values).cast(own.schema.field(at).type))
    return own


def _of_rank(
    rank: int, kernels: pa.Table, calls: pa.Table, groups: pa.Table, steps: pa.Table, events: pa.Table
) -> pa.Table:
    comm = kernels.filter(pa.array(of_class(kernels, "comm")))
    record = records(comm, calls, events)
    group = take(codes(calls["group"]), record.call, -1)
    dim = _dimensions(rank, group, dictionary(calls["group"]), groups, record)
    start, length = integers(comm["ts_ns"]), integers(comm["dur_ns"])
    compute = busy_set(kernels, of_class(kernels, "compute"))
    exposed = exposed_ns(Comm(start, start + length, dim, np.full(len(dim), -1, np.int64)), compute)
    reasons = blocked_by(comm, exposed, kernels, _step_end(comm, steps))
    picked = pa.array(record.call, mask=record.call < 0)
    return SCHEMA.build(
        {
            **{
                c: comm[c]
                for c in ("event_id", "step", "stream", "ts_ns", "dur_ns", "phase", "launch_ns", "module", "source")
            },
            **{
                c: calls[c].take(picked)
                for c in ("group", "seq", "comm_id", "dtype", "group_size", "peer", "in_splits", "out_splits")
            },
            "rank": np.full(len(dim), rank, np.int32),
            "dim": label(list(COMM_DIMS), dim),
            "op": label(list(VOCABULARY), record.op),
            "direction": _direction(calls, record),
            "size_bytes": np.ma.array(record.size_bytes, mask=record.size_bytes < 0),
            "received_bytes": _received(record, calls),
            "hidden_ns": iv.overlap_with(start, start + length, compute),
            "exposed_ns": exposed,
            "blocked_by": label(list(REASONS), reasons),
            "evidence": label(list(EVIDENCE), record.evidence),
        }
    )


def _received(record: Records, calls: pa.Table) -> np.ma.MaskedArray[Any, Any]:
    """Bytes out of each all-to-all: elements out, as wide as those in."""
    inward, outward = (take(integers(calls[c], -1), record.call, -1) for c in ("in_count", "out_count"))
    width = record.size_bytes // np.maximum(inward, 1)
    known = (record.op == code("all_to_all")) & (inward > 0) & (outward >= 0) & (record.size_bytes == width * inward)
    return np.ma.array(outward * width, mask=~known)


def _direction(calls: pa.Table, record: Records) -> pa.Array:
    """Which way a p2p kernel went, by the record of its call."""
    names = dictionary(calls["op"])
    by_code = np.array([DIRECTIONS.index(n) if n in DIRECTIONS else -1 for n in names], np.int64)
    said = by_code[take(codes(calls["op"]), record.call, -1)]
    return label(list(DIRECTIONS), np.where(record.op == code("p2p"), said, -1))


def _dimensions(rank: int, group: Ints, names: list[str], groups: pa.Table, record: Records) -> Ints:
    """Index in COMM_DIMS per row, from the group that holds this rank."""
    other = COMM_DIMS.index("other")
    dims: dict[str, int] = {}
    for row in groups.select(["group", "ranks", "dim"]).to_pylist():
        if row["ranks"] is None or rank in row["ranks"]:
            dims.setdefault(row["group"], COMM_DIMS.index(row["dim"]))
    by_group = np.array([dims.get(n, other) for n in names], np.int64)
    expert = np.isin(record.op, [code(o) for o in _EXPERT_OPS])
    return np.where(expert & (group < 0), COMM_DIMS.index("ep"), by_group[group])


def _step_end(comm: pa.Table, steps: pa.Table) -> Ints:
    """End of each row's step; of time where it has none."""
    steps = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("step")
    ends = integers(steps["ts_ns"]) + integers(steps["dur_ns"])
    place = lookup(integers(steps["step"]), integers(comm["step"], NEVER))
    return take(ends, place, np.iinfo(np.int64).max)
