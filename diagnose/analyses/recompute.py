"""Forward work done again in the backward pass (activation checkpointing).

Recomputation is bought on purpose: it saves memory. This measures its price, not a mistake, and it says nothing
where the recording holds neither Python frames nor autograd sequence numbers: no row then means unknown or none.

Two kinds of evidence, both on the innermost autograd node that was running at a kernel's launch:
- `checkpoint_frame`: a frame of a checkpoint function opened inside the node (later than the node itself, so that
  the backward which a reentrant checkpoint runs inside its frame does not count);
- `forward_op_in_backward`: an operator opened inside the node that records for a backward of its own (a sequence
  number and no forward thread). Backward operators run without gradient recording, so only work that will be
  differentiated later in the same pass does that; where they do record (`create_graph=True`), nothing is claimed.
Source: torch/utils/checkpoint.py; torch/csrc/autograd/engine.cpp (grad mode); aten dispatcher (sequence numbers).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, rows_of, take
from diagnose.analyses._host_names import BACKWARD_NODE, matches
from diagnose.analyses._intervals import total, union
from diagnose.analyses._nesting import Nesting, Threads
from diagnose.analyses._work import by_rank, of_kind, of_rank
from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "step with recorded recomputation",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("busy_ns", INT64, "union of recomputed kernels"),
    ("forward_ns", INT64, "union of the forward's kernels, for comparison"),
    ("kernels_count", INT64, "kernels run again"),
    ("evidence", LABEL, "checkpoint_frame | forward_op_in_backward"),
)

_FRAME = r"checkpoint\w*\.py\(\d+\): (recompute_fn|unpack_hook|inner_unpack|backward|recompute|unpack)$"
_NEVER = np.iinfo(np.int64).min


def recompute(kernels: pa.Table, events: pa.Table, op_args: pa.Table, steps: pa.Table) -> pa.Table:
    """One row per (rank, step) with recomputed kernels; none where nothing was found."""
    rows: list[tuple[int, int | None, int, int, int, str]] = []
    for rank, mine in by_rank(kernels) if kernels.num_rows else ():
        rows += _of_rank(rank, mine, of_rank(events, rank), op_args)
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA.columns)
    return SCHEMA.build(dict(zip(SCHEMA.arrow.names, map(list, columns), strict=True)))


def _of_rank(
    rank: int, kernels: pa.Table, events: pa.Table, op_args: pa.Table
) -> list[tuple[int, int | None, int, int, int, str]]:
    by_frame, by_op = recomputed(kernels, events, op_args)
    compute = _is(kernels["class"], "compute")
    again = (by_frame | by_op) & compute
    if not again.any():
        return []
    start = integers(kernels["ts_ns"])
    end = start + integers(kernels["dur_ns"])
    forward = _is(kernels["phase"], "forward") & compute
    step = np.where(flags(kernels["step"].is_valid()), integers(kernels["step"]), _NEVER)
    rows = []
    for one in np.unique(step[again]).tolist():
        mine, first = again & (step == one), forward & (step == one)
        evidence = "checkpoint_frame" if (mine & by_frame).any() else "forward_op_in_backward"
        busy, before = (total(union(start[chosen], end[chosen])) for chosen in (mine, first))
        rows.append((rank, None if one == _NEVER else one, busy, before, int(mine.sum()), evidence))
    return rows


def recomputed(kernels: pa.Table, events: pa.Table, op_args: pa.Table) -> tuple[Flags, Flags]:
    """Kernels of one rank launched by recomputation, by either evidence: (frame, operator)."""
    layers = _Layers(events, op_args)
    where = layers.threads.code(kernels["launch_process"], kernels["launch_thread"])
    when = integers(kernels["launch_ns"], _NEVER)
    node = layers.nodes.started_ns(where, when)
    inside = node != _NEVER
    by_frame = inside & (layers.frames.started_ns(where, when) > node)
    by_op = inside & (layers.recording.started_ns(where, when) >= node) & layers.trusted
    return by_frame, by_op


class _Layers:
    """Intervals of one rank that tell recomputation from backward work."""

    def __init__(self, events: pa.Table, op_args: pa.Table) -> None:
        names = dictionary(events["name"])
        self._name = codes(events["name"])
        self._start = integers(events["ts_ns"])
        self._end = self._start + integers(events["dur_ns"])
        self.threads = Threads(events["process"], events["thread"])
        ops, python = of_kind(events, "op"), of_kind(events, "python")
        is_node = matches(names, BACKWARD_NODE)[self._name[ops]]
        self.nodes = self._nesting(ops[is_node])
        self.frames = self._nesting(python[matches(names, _FRAME)[self._name[python]]])
        recording = self._recording(events, ops[~is_node], op_args)
        # An operator counts where the innermost node opened before it, on the same thread.
        of, at = self.threads.of_event[recording], self._start[recording]
        inside = recording[self.nodes.innermost(of, at) >= 0]
        backward = matches(names, r"(?i)backward")[self._name[inside]]
        self.trusted = not backward.any()
        self.recording = self._nesting(inside)

    def _recording(self, events: pa.Table, ops: Ints, op_args: pa.Table) -> Ints:
        """Operators with a sequence number and a forward thread of 0: they record for a backward of their own."""
        row = rows_of(integers(op_args["event_id"]), integers(events["event_id"])[ops])
        sequence = take(integers(op_args["sequence"], -1), row, -1)
        forward_thread = take(integers(op_args["forward_thread"], -1), row, -1)
        recording: Ints = ops[(sequence >= 0) & (forward_thread == 0)]
        return recording

    def _nesting(self, rows: Ints) -> Nesting:
        rows = rows[self.threads.of_event[rows] >= 0]
        return Nesting(self.threads.of_event[rows], self._start[rows], self._end[rows], rows)


def _is(column: pa.ChunkedArray, text: str) -> Flags:
    wanted = np.array([value == text for value in dictionary(column)], dtype=bool)
    return np.asarray(wanted[codes(column)], dtype=bool)
