"""Finish a trace that Kineto wrote on demand: say whose it is, and mark its steps.

Such traces know neither their rank nor their steps. Kineto starts them at the end of an optimizer step, so the ends of
`Optimizer.step` ranges bound the steps; where one optimizer steps once per step, `ProfilerStep#N` ranges are added that
say where they come from. Events that were recorded stay as they are.
Method: two passes in pieces, so that a large trace needs no memory; the text is Kineto's own, which puts a range's
name, process, thread, start and duration side by side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_RANGE = (
    rb'"name": "%s",\s{0,8}"pid": ([^,\n]{1,40}),\s{0,8}"tid": ([^,\n]{1,40}),\s{0,8}"ts": ([0-9.]{1,25}),'
    rb'\s{0,8}"dur": ([0-9.]{1,25})'
)
_OPTIMIZER = re.compile(_RANGE % rb"Optimizer\.step#([^\"\n]{1,80})")
_SPAN = re.compile(_RANGE % rb"PyTorch Profiler \(\d+\)")
_BASE = re.compile(rb'"baseTimeNanoseconds": (\d{1,20})')
_EVENTS = re.compile(rb'"traceEvents": ?\[')
_PIECE, _OVERLAP = 1 << 20, 1024


class Finished(NamedTuple):
    """What a trace turned out to hold."""

    steps_count: int | None
    """Steps marked; None where its steps cannot be told (no optimizer range, or several optimizers)."""
    start_ns: int | None
    """Wall time at which it begins."""


def finish(path: Path, to: Path, rank: int, world_size: int | None, first_step: int, calls_per_step: int) -> Finished:
    """Write `path` to `to` with its rank and steps, and remove it."""
    with path.open("rb") as old:
        optimizers, began, base = _scan(old)
        marks = _marks(optimizers, began, first_step, calls_per_step)
        old.seek(0)
        partial = to.with_name(to.name + ".tmp")
        with partial.open("wb") as new:
            _copy(old, new, _facts(rank, world_size), "".join(m + ",\n" for m in marks).encode())
    partial.replace(to)
    path.unlink(missing_ok=True)
    start = base + began if began is not None else None
    return Finished(len(marks) or None, start)


def _facts(rank: int, world_size: int | None) -> bytes:
    facts = {"rank": rank} | ({"world_size": world_size} if world_size else {})
    return b'"distributedInfo": ' + json.dumps(facts).encode() + b","


class _Range(NamedTuple):
    name: str
    process: str
    thread: str
    start_ns: int
    end_ns: int


def _scan(file: BinaryIO) -> tuple[list[_Range], int | None, int]:
    """Optimizer ranges, start of the profiler's own span, and the base, all in ns."""
    optimizers: dict[tuple[str, int], _Range] = {}
    began, base = None, 0
    for text in _pieces(file):
        for name, *rest in _OPTIMIZER.findall(text):
            process, thread, start, length = (r.decode("ascii", "replace") for r in rest)
            begin = _ns(start)
            found = _Range(name.decode("utf-8", "replace"), process, thread, begin, begin + _ns(length))
            optimizers[found.name, found.start_ns] = found
        if match := _SPAN.search(text):
            began = _ns(match[3].decode())
        if match := _BASE.search(text):
            base = int(match[1])
    return sorted(optimizers.values(), key=lambda r: r.start_ns), began, base


def _ns(microseconds: str) -> int:
    """Exactly: a date in microseconds with three decimals is too long for a float."""
    whole, _, decimals = microseconds.partition(".")
    return int(whole or "0") * 1000 + int((decimals + "000")[:3])


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """The file in overlapping pieces."""
    kept = b""
    while piece := file.read(_PIECE):
        yield kept + piece
        kept = piece[-_OVERLAP:]


def _marks(optimizers: list[_Range], began: int | None, first_step: int, calls: int) -> list[str]:
    """JSON of the step ranges; none where they cannot be told."""
    if began is None or not optimizers or len({(r.name, r.thread) for r in optimizers}) > 1:
        return []
    ends = [r.end_ns for r in optimizers[calls - 1 :: calls]]
    starts = [began, *ends[:-1]]
    if not ends or starts[0] >= ends[0]:
        return []
    where = optimizers[0]
    return [
        f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{first_step + number}", "pid": {where.process}, '
        f'"tid": {where.thread}, "ts": {_us(start)}, "dur": {_us(end - start)}, '
        '"args": {"added by": "diagnose attach, from the ends of Optimizer.step"}}'
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _copy(old: BinaryIO, new: BinaryIO, facts: bytes, events: bytes) -> None:
    """Copy with `facts` behind the first brace and `events` at the head of the list of events."""
    head = old.read(_PIECE)
    brace = head.find(b"{") + 1
    if brace and b'"distributedInfo"' not in head:
        head = head[:brace] + facts + head[brace:]
    match = _EVENTS.search(head)
    if match is not None:
        head = head[: match.end()] + b"\n" + events + head[match.end() :]
    new.write(head)
    while piece := old.read(_PIECE):
        new.write(piece)
