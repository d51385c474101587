"""Time without device work inside the window and the steps, cut by cause; rows of a rank are disjoint.

Causes, the first that applies at each moment: `input` (the data loader ran), `gc`, `alloc` (device memory calls),
`sync` (from the last work's end to the first kernel launched after a blocking synchronise or `.item()` returned),
`launch` (the host issued the next kernel late), `idle` (unknown: on
the device's side of the launch, or no launch known).
Only idle before the next work's launch call is the host's. Where launches were not recorded, a gap takes a cause only
from a host event that overlaps it, and is never `launch`.
It does not say what the step would gain: the host may have been late for more than one reason.

Method: gaps are the complement of all work; causes are interval sets, intersected with the host's side of each gap
and layered by precedence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Flags, Ints, codes, dense, dictionary, integers, label, take
from diagnose.analyses._host_causes import HostCauses, Ranges, host_causes
from diagnose.analyses._nesting import Nesting
from diagnose.analyses._work import LINKED_SHARE, NEVER, by_rank, of_kind
from diagnose.schema import DEVICE_WORK_KINDS, IDLE_CAUSES, INT32, INT64, LABEL, table

SCHEMA = table(
    "idle interval with one cause",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step that holds it; null outside"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration"),
    ("cause", LABEL, "one of IDLE_CAUSES"),
    ("before", LABEL, "kernel that ends the gap"),
    ("host", LABEL, "host event blamed: the data loader range, cudaMalloc, the synchronise, the operator"),
    ("module", LABEL, "module or named range of the kernel that ends the gap"),
    ("source", LABEL, "source line, where recorded"),
)

MIN_BLOCK_NS = 10_000
"""A synchronise that returned while other streams still ran blocked only if it took this long; a guess."""
_FOREVER = np.iinfo(np.int64).max


def idle(kernels: pa.Table, steps: pa.Table, events: pa.Table) -> pa.Table:
    """Idle intervals of every rank that has work, in order of time."""
    found = []
    for rank, part in by_rank(events) if kernels.num_rows else ():
        mine = kernels.filter(pc.equal(kernels["rank"], rank))
        if mine.num_rows:
            found.append(_of_rank(rank, mine, steps.filter(pc.equal(steps["rank"], rank)), part))
    return pa.concat_tables([SCHEMA.empty(), *found]).unify_dictionaries().combine_chunks()


class Gaps(NamedTuple):
    """Gaps of one rank in order, and the work that ends each (index, or -1 at the end of the recording)."""

    span: Ints  # (n, 2)
    next: Ints
    launch_ns: Ints  # of that work; NEVER where unknown


class _Busy(NamedTuple):
    """Work of one rank in order of start."""

    start: Ints
    end: Ints
    launch_ns: Ints
    kernel: Flags

    @property
    def mostly_linked(self) -> bool:
        return float((self.launch_ns != NEVER).mean()) >= LINKED_SHARE


def _of_rank(rank: int, kernels: pa.Table, steps: pa.Table, events: pa.Table) -> pa.Table:
    kernels = kernels.take(pa.array(np.argsort(integers(kernels["ts_ns"]), kind="stable")))
    start = integers(kernels["ts_ns"])
    copies = np.array([c == "copy" for c in dictionary(kernels["class"])], bool)[codes(kernels["class"])]
    busy = _Busy(start, start + integers(kernels["dur_ns"]), integers(kernels["launch_ns"], NEVER), ~copies)
    steps = steps.filter(pc.is_valid(steps["ts_ns"])).sort_by("ts_ns")
    step_start = integers(steps["ts_ns"])
    step_end = step_start + integers(steps["dur_ns"])
    gaps = find_gaps(busy, step_start, step_end)
    causes = host_causes(events, kernels)
    if not len(of_kind(events, *DEVICE_WORK_KINDS)):
        # A job without a device launches nothing, so nothing waits for a launch.
        nothing = Ranges(*(c[:0] for c in causes.sync))
        causes = causes._replace(alloc=nothing, sync=nothing)
    pieces = _by_cause(gaps, busy, causes)
    cuts = np.concatenate((step_start, step_end))
    rows = [(iv.split_at(spans, np.concatenate((cuts, gaps.span[:, 0]))), cause) for cause, spans in pieces.items()]
    spans = np.concatenate([r for r, _ in rows])
    cause = np.repeat(np.arange(len(rows)), [len(r) for r, _ in rows])
    order = np.argsort(spans[:, 0], kind="stable")
    spans, cause = spans[order], cause[order]
    at = np.searchsorted(step_start, spans[:, 0], "right") - 1
    at = np.where((at >= 0) & (spans[:, 1] <= take(step_end, at, NEVER)), at, -1)
    following = take(gaps.next, iv.index_at(gaps.span, spans[:, 0]), -1)
    step = take(integers(steps["step"]), at, NEVER)
    return SCHEMA.build(
        {
            "rank": np.full(len(spans), rank, np.int32),
            "step": np.ma.array(step, mask=step == NEVER),
            "ts_ns": spans[:, 0],
            "dur_ns": spans[:, 1] - spans[:, 0],
            "cause": label(list(IDLE_CAUSES), cause),
            "host": _blamed(spans[:, 0], cause, causes, events, kernels, following),
            **{to: _of_following(kernels, column, following) for to, column in _FOLLOWING.items()},
        }
    )


_FOLLOWING = {"before": "name", "module": "module", "source": "source"}


def find_gaps(busy: _Busy, step_start: Ints, step_end: Ints) -> Gaps:
    """Gaps between the first and the last moment of work or of a step."""
    first = min([int(busy.start.min()), *step_start[:1].tolist()])
    last = max([int(busy.end.max()), *step_end[-1:].tolist()])
    span = iv.complement(iv.union(busy.start, busy.end), first, last)
    following = np.searchsorted(busy.start, span[:, 1], "left")
    following = np.where(following < len(busy.start), following, -1)
    return Gaps(span, following, take(busy.launch_ns, following, NEVER))


def _by_cause(gaps: Gaps, busy: _Busy, causes: HostCauses) -> dict[str, Ints]:
    """Disjoint interval sets per cause, which together are the gaps."""
    known = gaps.launch_ns != NEVER
    host_end = np.where(known, np.clip(gaps.launch_ns, gaps.span[:, 0], gaps.span[:, 1]), gaps.span[:, 0])
    late = iv.union(gaps.span[:, 0], host_end)
    open_ended = (gaps.next < 0) | (~known & (not busy.mostly_linked))
    hosts = iv.merge(late, gaps.span[open_ended]) if open_ended.any() else late
    candidates = [
        *(iv.intersect(hosts, iv.union(r.start, r.end)) for r in (causes.input, causes.gc, causes.alloc)),
        iv.intersect(hosts, after_syncs(gaps, busy, causes.sync)),
        late,
        gaps.span,
    ]
    return dict(zip(IDLE_CAUSES, iv.layers(candidates), strict=True))


def after_syncs(gaps: Gaps, busy: _Busy, syncs: Ranges) -> Ints:
    """From the end of the work that each synchronise waited for to the first kernel launched after it returned."""
    if not len(syncs.start):
        return iv.EMPTY
    gap = iv.index_at(gaps.span, syncs.end)
    gap_start, launch = take(gaps.span[:, 0], gap, NEVER), take(gaps.launch_ns, gap, NEVER)
    in_gap = gap >= 0
    waited = in_gap & (gap_start >= syncs.start) & ((launch == NEVER) | (launch >= syncs.end))
    waited |= ~in_gap & (syncs.end - syncs.start >= MIN_BLOCK_NS)
    issued = busy.launch_ns if busy.mostly_linked else busy.start
    issued = np.sort(issued[busy.kernel & (issued != NEVER)])
    at = np.searchsorted(issued, syncs.end, "left")
    until = np.append(issued, _FOREVER)[at]
    since = np.where(in_gap, gap_start, syncs.end)
    return iv.union(since[waited], until[waited])


def _blamed(
    moments: Ints, cause: Ints, causes: HostCauses, events: pa.Table, kernels: pa.Table, following: Ints
) -> pa.Array:
    """Name of the host event behind each piece; for `launch` the operator that issued the next work."""
    names = dictionary(events["name"])
    name = codes(events["name"])
    ops = dictionary(kernels["op"])
    result = np.full(len(moments), -1, np.int64)
    for index, ranges in enumerate(causes):
        mine = np.flatnonzero(cause == index)
        if not len(mine):
            continue
        if IDLE_CAUSES[index] == "sync":
            at = np.searchsorted(np.sort(ranges.end), moments[mine], "left")  # the one that returned next
            row = ranges.row[np.argsort(ranges.end, kind="stable")][np.minimum(at, len(ranges.row) - 1)]
        else:
            zeros = np.zeros(len(ranges.row), np.int64)
            nest = Nesting(zeros, ranges.start, ranges.end, ranges.row)
            row = nest.innermost(np.zeros(len(mine), np.int64), moments[mine])
        result[mine] = take(name, row, -1)
    late = np.flatnonzero(cause == IDLE_CAUSES.index("launch"))
    op = take(codes(kernels["op"]), following[late], -1)
    result[late] = np.where(op >= 0, op + len(names), -1)
    texts = [*names, *ops]
    used, place = dense(np.where(result < 0, len(texts), result), len(texts) + 1)
    return label([texts[i] for i in used.tolist() if i < len(texts)], np.where(result < 0, -1, place))


def _of_following(kernels: pa.Table, column: str, following: Ints) -> pa.Array:
    return label(dictionary(kernels[column])[:-1], take(codes(kernels[column]), following, -1))
