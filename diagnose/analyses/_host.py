"""Who was open on a host thread at a moment: operator, module, user source line, phase.

Asked for the moment a kernel was launched, this says who launched it. It equals the profiler's own operator link
wherever that link is valid, and also works where the link is missing or garbage.
It does not say who *waited*: a kernel runs later, often under another operator of the host.

Method: `Nesting` per kind of interval. Phase: optimizer inside `Optimizer.*` ranges; backward inside autograd
nodes and on threads that run nothing else; forward for operators with an autograd sequence number outside of
those, in forward ranges of frameworks, or with a backward still to come before the next optimizer or step mark (but
not communication: pipeline schedules send and receive between the passes); else unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers, label, rows_of, take
from diagnose.analyses._host_names import (
    BACKWARD_NODE,
    BACKWARD_RANGE,
    COMMUNICATION_OP,
    FORWARD_RANGE,
    RANGE_RECORDED_AS_OP,
    matches,
    module_labels,
    names_module,
    user_lines,
)
from diagnose.analyses._nesting import Nesting, Threads
from diagnose.analyses._work import of_kind

PHASES = ("forward", "backward", "optimizer")
UNKNOWN_PHASE = -1


class Open(NamedTuple):
    """What was open at each of n moments: indices in `HostStack.rows` (-1: none) and in PHASES (-1: unknown)."""

    op: Ints
    annotation: Ints
    module_frame: Ints
    source_frame: Ints
    phase: Ints
    annotation_ns: Ints
    module_frame_ns: Ints


class HostStack:
    """Open intervals of the host threads of one rank. `rows` are the rows of `events` that can be open."""

    def __init__(self, events: pa.Table, op_args: pa.Table | None = None) -> None:
        """`events` of one rank, any order. `op_args` sharpens the phase and gives backward work its module."""
        self.rows = of_kind(events, "op", "annotation", "python")
        columns = ["event_id", "kind", "name", "ts_ns", "dur_ns", "process", "thread"]
        events = events.select(columns).take(pa.array(self.rows))
        self._names = dictionary(events["name"])
        kind = dictionary(events["kind"])
        self._name = codes(events["name"])
        kinds = codes(events["kind"])
        self._starts = integers(events["ts_ns"])
        self._ends = self._starts + integers(events["dur_ns"])
        self._threads = Threads(events["process"], events["thread"])
        is_kind = {k: kinds == (kind.index(k) if k in kind else -2) for k in ("op", "annotation", "python")}
        op, annotation, python = is_kind["op"], is_kind["annotation"], is_kind["python"]
        ranges = op & self._named(matches(self._names, RANGE_RECORDED_AS_OP))
        op, annotation = op & ~ranges, annotation | ranges
        self._op_flags = op
        self._ops = self._nesting(op)
        self._annotations = self._nesting(annotation & self._named(names_module(self._names)))
        self._module_frames = self._nesting(python & self._named(matches(self._names, r"^nn\.Module: ")))
        self._source_frames = self._nesting(python & self._named(user_lines(self._names)))
        self._sequence, self._forward_thread = _sequences(events, op_args)
        self._prepare_phase(op, annotation)
        self._module_labels, self._module_of = module_labels(self._names)

    def at(
        self, process: pa.ChunkedArray | Ints, thread: pa.ChunkedArray | Ints, ts_ns: pa.ChunkedArray | Ints
    ) -> Open:
        """What was open at each (process, thread, moment). Nulls and unknown threads have nothing open."""
        where, when = self._threads.code(process, thread), integers(ts_ns)
        op = self._ops.innermost(where, when)
        phase = self._phase(where, when, op)
        found = Open(
            op,
            self._annotations.innermost(where, when),
            self._module_frames.innermost(where, when),
            self._source_frames.innermost(where, when),
            phase,
            self._annotations.started_ns(where, when),
            self._module_frames.started_ns(where, when),
        )
        return self._with_forward_of_backward(found, where, when)

    def labels(self, found: Open) -> dict[str, pa.Array]:
        """Text columns `op`, `module`, `source`, `phase` (dictionary encoded; null where nothing was open)."""
        newest = np.where(found.annotation_ns >= found.module_frame_ns, found.annotation, found.module_frame)
        return {
            "op": label(self._names, take(self._name, found.op, -1)),
            "module": label(self._module_labels, take(self._module_of, take(self._name, newest, -1), -1)),
            "source": label(self._names, take(self._name, found.source_frame, -1)),
            "phase": label(list(PHASES), found.phase),
        }

    def _nesting(self, chosen: Flags) -> Nesting:
        rows = np.flatnonzero(chosen & (self._threads.of_event >= 0))
        return Nesting(self._threads.of_event[rows], self._starts[rows], self._ends[rows], rows)

    def _named(self, by_name: Flags) -> Flags:
        """Flag per event from a flag per distinct name."""
        return by_name[self._name]

    def _prepare_phase(self, op: Flags, annotation: Flags) -> None:
        optimizer = annotation & self._named(matches(self._names, r"^Optimizer\."))
        backward = op & (self._named(matches(self._names, BACKWARD_NODE)) | (self._forward_thread > 0))
        backward |= annotation & self._named(matches(self._names, BACKWARD_RANGE))
        forward = op & (self._sequence >= 0) & (self._forward_thread <= 0) & ~backward
        forward |= annotation & self._named(matches(self._names, FORWARD_RANGE))
        self._communicates = matches(self._names, COMMUNICATION_OP)
        step = annotation & self._named(matches(self._names, r"^ProfilerStep"))
        self._optimizer, self._backward, self._forward = map(self._nesting, (optimizer, backward, forward))
        of = self._threads.of_event
        count = self._threads.count + 1  # one more, so that code -1 has its own last place
        # Gradients are zeroed anywhere between two steps, so that alone ends no forward.
        optimizer &= self._named(matches(self._names, r"^Optimizer\.step"))
        nodes, optimizer, step = (chosen & (of >= 0) for chosen in (backward & op, optimizer, step))
        runs_nodes = np.bincount(of[nodes], minlength=count) > 0
        others = np.bincount(of[step | optimizer], minlength=count) > 0
        inside = np.flatnonzero(op & (of >= 0))
        outside = inside[self._backward.innermost(of[inside], self._starts[inside]) < 0]
        mostly = np.bincount(of[outside], minlength=count) <= 0.1 * np.bincount(of[inside], minlength=count)
        self._autograd_thread = runs_nodes & mostly & ~others
        marks = np.concatenate([self._starts[nodes], self._starts[optimizer], self._starts[step]])
        kinds = np.repeat([1, 2, 3], [nodes.sum(), optimizer.sum(), step.sum()])
        order = np.lexsort((kinds, marks))
        self._marks, self._mark_kinds = marks[order], np.append(kinds[order], 0)
        self._has_backward, self._has_optimizer = bool(nodes.any()), bool(optimizer.any())

    def _phase(self, where: Ints, when: Ints, op: Ints) -> Ints:
        """Index in PHASES of each moment, -1 where nothing tells."""
        following = self._mark_kinds[np.searchsorted(self._marks, when, side="right")]
        # Without backward and optimizer it is inference; an optimizer alone means a backward that is not recognised.
        inference = np.full(len(when), not self._has_optimizer)
        towards_backward = following == 1 if self._has_backward else inference
        between = np.append(self._communicates, False)[take(self._name, op, -1)]
        forward = (op >= 0) & ((towards_backward & ~between) | (self._forward.innermost(where, when) >= 0))
        backward = (self._backward.innermost(where, when) >= 0) | self._autograd_thread[where]
        optimizer = self._optimizer.innermost(where, when) >= 0
        return np.select([optimizer, backward, forward], [2, 1, 0], UNKNOWN_PHASE).astype(np.int64)

    def _with_forward_of_backward(self, found: Open, where: Ints, when: Ints) -> Open:
        """Give backward work without module or line those of the forward operator with its sequence number."""
        bare = (found.phase == 1) & (found.annotation < 0) & (found.module_frame < 0)
        rows = np.flatnonzero(bare)
        node = self._backward.innermost(where[rows], when[rows])
        forward = self._forward_ops(node)
        rows, forward = rows[forward >= 0], forward[forward >= 0]
        if not len(rows):
            return found
        home, moment = self._threads.of_event[forward], self._starts[forward]
        for layer, index, started in (
            (self._annotations, found.annotation, found.annotation_ns),
            (self._module_frames, found.module_frame, found.module_frame_ns),
        ):
            index[rows] = layer.innermost(home, moment)
            started[rows] = layer.started_ns(home, moment)
        source = self._source_frames.innermost(home, moment)
        found.source_frame[rows] = np.where(found.source_frame[rows] >= 0, found.source_frame[rows], source)
        return found

    def _forward_ops(self, node: Ints) -> Ints:
        """Index of the forward operator of each backward node: same sequence, last one before it; -1: none."""
        sequence = np.where(node >= 0, self._sequence[node], -1)
        rows = np.flatnonzero(self._op_flags & (self._sequence >= 0) & (self._forward_thread <= 0))
        rows = rows[self._backward.innermost(self._threads.of_event[rows], self._starts[rows]) < 0]
        rows = rows[np.lexsort((self._starts[rows], self._sequence[rows]))]
        if not len(rows):
            return np.full(len(node), -1, dtype=np.int64)
        known, first = np.unique(self._sequence[rows], return_index=True)
        last = np.append(first[1:], len(rows)) - 1
        nearest = np.minimum(np.searchsorted(known, sequence), len(known) - 1)
        candidate = rows[last[nearest]]
        fits = (known[nearest] == sequence) & (sequence >= 0) & (self._starts[candidate] < self._starts[node])
        return np.where(fits, candidate, -1)


def _sequences(events: pa.Table, op_args: pa.Table | None) -> tuple[Ints, Ints]:
    """Sequence number and forward thread per event; -1 where not recorded."""
    sequence = np.full(events.num_rows, -1, dtype=np.int64)
    forward_thread = sequence.copy()
    if op_args is None or not op_args.num_rows or not events.num_rows:
        return sequence, forward_thread
    rows = rows_of(integers(events["event_id"]), integers(op_args["event_id"]))
    mine = rows >= 0
    sequence[rows[mine]] = integers(op_args["sequence"], -1)[mine]
    forward_thread[rows[mine]] = integers(op_args["forward_thread"], -1)[mine]
    return sequence, forward_thread
