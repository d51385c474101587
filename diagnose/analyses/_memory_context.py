"""Who asked for each allocation: its call stack in snapshots, the host's phase and operator in traces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import NO_RANK, Flags, Ints, codes, dictionary, flags, integers, rows_of
from diagnose.analyses._memory_stacks import CLASSES, meaning
from diagnose.analyses._replay import Lives
from diagnose.analyses._work import of_rank

Said = tuple[Ints, "np.ndarray", Ints, Flags, Ints]
_OF_PHASE = {"forward": "forward", "backward": "backward", "optimizer": "optimizer"}
_COMMUNICATION = r"^(c10d::|_c10d_functional::|record_param_comms|FSDP::(all_gather|post_backward_reduce))"


@dataclass(frozen=True)
class Context:
    """What is known about each allocator event and end block.

    `kind`: index in CLASSES; `place`: index in `places`, -1 where unknown; `stack`: key, -1 where none.
    """

    kind: Ints
    confidence_ratio: np.ndarray
    place: Ints
    loss: Flags
    stack: Ints
    events_count: int
    places: list[str]
    optimizer_starts: Ints
    """Events at which an optimizer step starts, in order."""

    def of_lives(self, found: Lives, active: Ints) -> Said:
        """Kind, confidence, place, loss and stack of each life; `active`: rows of blocks that are end blocks."""
        row = np.where(found.event >= 0, found.event, -1)
        from_block = (found.event < 0) & (found.block >= 0)
        row[from_block] = self.events_count + active[found.block[from_block]]
        known = row >= 0

        def pick(values: np.ndarray, absent: float) -> np.ndarray:
            result = np.full(len(row), absent, dtype=values.dtype)
            result[known] = values[row[known]]
            return result

        columns = ((self.kind, 0), (self.confidence_ratio, 0.0), (self.place, -1), (self.loss, 0), (self.stack, -1))
        return tuple(pick(values, absent) for values, absent in columns)  # type: ignore[return-value]


def of_snapshot(
    rank: int, device: int, events: pa.Table, blocks: pa.Table, stacks: pa.Table | None, marks: pa.Table | None
) -> Context:
    """From call stacks, looked at once each, and ranges named in the snapshot."""
    keys = np.concatenate([integers(events["stack"], -1), integers(blocks["stack"], -1)])
    distinct, code = np.unique(keys, return_inverse=True)
    texts = dict(zip(stacks["stack"].to_pylist(), stacks["frames"].to_pylist(), strict=True)) if stacks else {}
    said = [meaning(texts[key]) if key in texts else None for key in distinct.tolist()]
    places = list(dict.fromkeys(m.where for m in said if m is not None))
    number = {text: i for i, text in enumerate(places)}
    kind = np.array([m.kind if m else 0 for m in said], dtype=np.int64)
    confidence = np.array([m.confidence_ratio if m else 0.0 for m in said])
    place = np.array([number[m.where] if m else -1 for m in said], dtype=np.int64)
    loss = np.array([bool(m and m.loss) for m in said], dtype=bool)
    starts = _optimizer_marks(rank, device, events, marks)
    return Context(kind[code], confidence[code], place[code], loss[code], keys, events.num_rows, places, starts)


def _optimizer_marks(rank: int, device: int, events: pa.Table, marks: pa.Table | None) -> Ints:
    times = integers(events["ts_ns"], -1)
    if marks is None or not marks.num_rows or not len(times) or (times < 0).any():
        return np.zeros(0, dtype=np.int64)
    named = pc.starts_with(marks["name"].cast(pa.string()), "Optimizer.step")
    own = (integers(marks["rank"], NO_RANK) == rank) & (integers(marks["device"], device) == device)
    starts = integers(marks.filter(pc.and_(named, pa.array(own)))["ts_ns"])
    return np.unique(np.searchsorted(times, np.sort(starts)))


def of_trace(rank: int, allocations: pa.Table, events: pa.Table | None, op_args: pa.Table | None) -> Context:
    """From what was open on the allocating thread."""
    n = allocations.num_rows
    nothing = Context(
        np.zeros(n, np.int64), np.zeros(n), np.full(n, -1), np.zeros(n, bool), np.full(n, -1), n, [], np.zeros(0, int)
    )
    if events is None or not events.num_rows:
        return nothing
    from diagnose.analyses._host import HostStack

    mine = of_rank(events, rank, absent=NO_RANK)
    row = rows_of(integers(mine["event_id"]), integers(allocations["event_id"], -1))
    if (row < 0).any():
        return nothing
    here = mine.select(["process", "thread", "ts_ns"]).take(pa.array(row))
    host = HostStack(mine, op_args)
    said = host.labels(host.at(here["process"], here["thread"], here["ts_ns"]))
    phases, phase = _coded(said["phase"])
    ops, op = _coded(said["op"])
    places, place = _places(_coded(said["module"]), (ops, op))
    texts = pa.array(ops)
    kind = np.array([CLASSES.index(_OF_PHASE.get(p, "none")) for p in phases], dtype=np.int64)[phase]
    kind[flags(pc.match_substring_regex(texts, _COMMUNICATION))[op]] = CLASSES.index("comm")
    loss = flags(pc.match_substring_regex(texts, "cross_entropy|nll_loss|log_softmax"))[op]
    confidence = np.where(kind > 0, 0.8, 0.0)
    optimizer = np.flatnonzero(kind == CLASSES.index("optimizer"))
    first = optimizer[np.diff(optimizer, prepend=-2) > 1] if len(optimizer) else optimizer
    starts = np.union1d(first, _ranges(mine, here))
    return Context(kind, confidence, place, loss, np.full(n, -1), n, places, starts)


def _coded(column: pa.DictionaryArray) -> tuple[list[str], Ints]:
    """Texts of a column, a last empty one for nulls, and the index of each row's."""
    texts = [*column.dictionary.to_pylist(), ""]
    return texts, integers(column.indices, len(texts) - 1)


def _places(module: tuple[list[str], Ints], op: tuple[list[str], Ints]) -> tuple[list[str], Ints]:
    """Module and operator as one text, and the index of each row's; -1 where nothing was open."""
    width = len(op[0])
    pairs, local = np.unique(module[1] * width + op[1], return_inverse=True)
    texts = [" ".join(filter(None, (module[0][pair // width], op[0][pair % width]))) for pair in pairs.tolist()]
    places = list(dict.fromkeys(filter(None, texts)))
    number = {text: i for i, text in enumerate(places)}
    return places, np.array([number.get(text, -1) for text in texts], dtype=np.int64)[local]


def _ranges(events: pa.Table, allocations: pa.Table) -> Ints:
    """Allocator events at which an Optimizer.step range starts."""
    named = np.array([name.startswith("Optimizer.step") for name in dictionary(events["name"])])
    starts = np.sort(integers(events["ts_ns"].filter(pa.array(named[codes(events["name"])]))))
    return np.unique(np.searchsorted(integers(allocations["ts_ns"]), starts))
