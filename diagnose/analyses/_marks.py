"""Where the host says that a step begins: the marks from which steps are made.

In order of trust: `ProfilerStep#N`; a repeated annotation of the user that tiles the recording (`train_step`,
`iteration 5`); a repeated sequence of communication kernels, which is a guess and says so; else none.
A mark says when the host *issued* a step, not when the device ran it.

Method: candidates are judged per family (name without its number) by how often they come and how much they tile.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._classify import is_comm_name
from diagnose.analyses._columns import Ints, codes, dictionary, encode, integers
from diagnose.analyses._work import Work, of_kind

_PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)")
_NUMBERED = re.compile(r"[\s_#:=\-\[(./]*(\d+)\s*[\])]?\s*$")
_STEP_LIKE = re.compile(r"(?i)(^|[^a-z])(training|train|global)?[ _\-./]?(step|iter|iteration|batch)s?([^a-z]|$)")
_PART_OF_STEP = re.compile(
    r"(?i)(^|[^a-z])((get|next|load|fetch|prefetch|read|zero|log|save|copy|to|opt|data)([^a-z]|$)"
    r"|dataload|micro|optim|scaler|scheduler|h2d)"
)
"""Ranges that are named after a step or batch, yet are only a part of it."""
_FRAMEWORK = re.compile(
    r"^(nccl:|gloo:|mpi:|xccl:|hccl:|Optimizer\.|FSDP::|FullyShardedDataParallel|DistributedDataParallel|torch\."
    r"|## Call|enumerate\(|PP:|autograd|(Forward|Backward) ?\d|Torch-Compiled|TorchDynamo|PyTorch Profiler"
    r"|Iteration Start)"
)
STEP_LIKE_TILING = 0.5
"""Share of its own span that a family named like a step must cover; a guess, loaders often lie outside the range."""
ANY_TILING = 0.9
"""The same for families of any name: only what leaves no room for anything else can be the outer loop. A guess."""
SPAN_SHARE = 0.5
"""Share of the recording, in time, from the first mark to the last; below it the family is an episode, not the loop."""
PERIOD_SPREAD = 0.25
"""Periods guessed from communication may differ this much from their median. A guess."""


class Marks(NamedTuple):
    """Step marks of one rank in order of time, all of one length; intervals do not overlap."""

    source: str  # profiler_step | annotation | collectives | "" (no marks)
    number: Ints
    name: list[str]
    start: Ints
    end: Ints


NONE = Marks("", np.zeros(0, np.int64), [], np.zeros(0, np.int64), np.zeros(0, np.int64))


def find_marks(events: pa.Table, work: Work) -> Marks:
    """Marks of one rank's events."""
    return _profiler_steps(events) or _annotations(events) or _repeated_communication(events, work) or NONE


class _Ranges(NamedTuple):
    """Candidate host ranges: name code, thread code, times."""

    name: Ints
    thread: Ints
    start: Ints
    end: Ints


def _ranges(events: pa.Table, kinds: tuple[str, ...], wanted: list[bool]) -> _Ranges:
    rows = of_kind(events, *kinds)
    name = codes(events["name"])[rows]
    chosen = np.array(wanted, bool)[name] if len(rows) else np.zeros(0, bool)
    rows, name = rows[chosen], name[chosen]
    part = events.select(["file", "process", "thread", "ts_ns", "dur_ns"]).take(rows)
    thread = np.zeros(len(rows), np.int64)
    for column in ("file", "process", "thread"):
        distinct, place = encode(part[column])
        thread = thread * (len(distinct) + 1) + place + 1
    start = integers(part["ts_ns"])
    order = np.argsort(start, kind="stable")
    return _Ranges(name[order], thread[order], start[order], (start + integers(part["dur_ns"]))[order])


def _profiler_steps(events: pa.Table) -> Marks | None:
    names = dictionary(events["name"])
    numbers = [_PROFILER_STEP.match(name) for name in names]
    ranges = _ranges(events, ("annotation", "op", "other"), [m is not None for m in numbers])
    if not len(ranges.name):
        return None
    number = np.array([int(m.group(1)) if m else -1 for m in numbers], np.int64)[ranges.name]
    keep = _without_overlap(ranges, _busiest_thread(ranges))
    number = number[keep]
    if len(np.unique(number)) < len(number) or np.any(np.diff(number) < 0):
        number = np.arange(len(number), dtype=np.int64)  # the counter was restarted: order is all that is left
    return Marks("profiler_step", number, [names[c] for c in ranges.name[keep]], ranges.start[keep], ranges.end[keep])


def _busiest_thread(ranges: _Ranges) -> int:
    """The thread whose ranges last longest: the training loop, where several threads carry the mark."""
    codes_, index = np.unique(ranges.thread, return_inverse=True)
    return int(codes_[np.argmax(np.bincount(index, weights=(ranges.end - ranges.start).astype(float)))])


def _without_overlap(ranges: _Ranges, thread: int) -> Ints:
    """Rows on the thread that begin after the end of all before them: a mark inside a mark is a duplicate."""
    rows = np.flatnonzero((ranges.thread == thread) & (ranges.end > ranges.start))
    reach = np.maximum.accumulate(ranges.end[rows]) if len(rows) else rows
    fresh = np.ones(len(rows), bool)
    fresh[1:] = ranges.start[rows][1:] >= reach[:-1]
    return rows[fresh]


def _annotations(events: pa.Table) -> Marks | None:
    names = dictionary(events["name"])
    ranges = _ranges(events, ("annotation",), [bool(n) and not _FRAMEWORK.match(n) for n in names])
    if not len(ranges.name):
        return None
    families = [_NUMBERED.sub("", n) or n for n in names]
    family_names, family = np.unique(np.array(families), return_inverse=True)
    of_range = family[ranges.name]
    recorded = integers(events["ts_ns"])
    length = int((recorded + integers(events["dur_ns"])).max() - recorded.min())
    best: tuple[tuple[bool, int], Ints] | None = None
    for code in np.unique(of_range).tolist():
        step_like = _names_step(str(family_names[code]))
        rows = _tiling_rows(ranges, of_range == code, step_like, length)
        if rows is not None:
            covered = int((ranges.end[rows] - ranges.start[rows]).sum())
            score = (step_like, covered)
            best = max(best, (score, rows), key=lambda b: b[0]) if best else (score, rows)
    if best is None:
        return None
    rows = best[1]
    texts = [names[c] for c in ranges.name[rows]]
    found = [_NUMBERED.search(t) for t in texts]
    number = np.array([int(m.group(1)) if m else -1 for m in found], np.int64)
    if number.min() < 0 or np.any(np.diff(number) <= 0):
        number = np.arange(len(rows), dtype=np.int64)
    return Marks("annotation", number, texts, ranges.start[rows], ranges.end[rows])


def _names_step(family: str) -> bool:
    return bool(_STEP_LIKE.search(family)) and not _PART_OF_STEP.search(family)


def _tiling_rows(ranges: _Ranges, chosen: np.ndarray, step_like: bool, length: int) -> Ints | None:
    """The family's ranges on its busiest thread, if they repeat and tile enough to be the training loop."""
    part = _Ranges(*(column[chosen] for column in ranges))
    keep = _without_overlap(part, _busiest_thread(part))
    if len(keep) < (2 if step_like else 3) or len(keep) < 0.5 * int(chosen.sum()):
        return None
    span = int(part.end[keep[-1]] - part.start[keep[0]])
    covered = int((part.end[keep] - part.start[keep]).sum())
    if covered < (STEP_LIKE_TILING if step_like else ANY_TILING) * span or span < SPAN_SHARE * length:
        return None
    return np.flatnonzero(chosen)[keep]


def _repeated_communication(events: pa.Table, work: Work) -> Marks | None:
    """Steps from a sequence of communication kernels that repeats at least three times at an even pace."""
    names = dictionary(events["name"])
    comm = np.array([is_comm_name(n) for n in names], bool)
    name = codes(events["name"])[work.row]
    at = np.flatnonzero(comm[name] & work.kernel) if len(name) else np.zeros(0, np.int64)
    sequence, start = name[at], work.start[at]
    period = _period(sequence)
    if period is None or len(np.unique(sequence)) < 2:
        return None
    first = start[::period][: len(sequence) // period + 1]
    lengths = np.diff(first)
    median = float(np.median(lengths))
    if np.any(np.abs(lengths - median) > PERIOD_SPREAD * median):
        return None
    starts, ends = first[:-1], first[1:]
    return Marks(
        "collectives", np.arange(len(starts), dtype=np.int64), [names[sequence[0]]] * len(starts), starts, ends
    )


def _period(sequence: Ints) -> int | None:
    """Shortest period of which the sequence holds at least three."""
    for period in range(2, len(sequence) // 3 + 1):
        if np.array_equal(sequence[period:], sequence[:-period]):
            return period
    return None
