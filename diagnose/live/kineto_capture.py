"""A capture of the same steps on several ranks through Kineto's own channel: no code in the process takes part.

Which processes are ranks: those of the records, else those with RANK in their environment and no torch process with the
same RANK above them (data loader workers inherit it; the torchrun agent has none). Where records tell how far torch has
counted, all ranks get one absolute step far enough ahead that each has asked by then; else each starts at the next
multiple of a number, and whether they met is checked afterwards.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diagnose.hook_records import UNKNOWN
from diagnose.live import _guard, finishing, kineto_ipc, rings
from diagnose.live.ranks import Rank

ASK_S = 2.5
"""Within this time every process has asked twice, with the interval of one second that `launch` sets."""
AGAIN_S = 1.5
ROUNDUPS = (50, 200, 800)
"""Ranks that hear of it on two sides of a multiple begin apart: then again with a larger one."""
TOGETHER_NS = 50_000_000
"""Traces of one step begin closer together than this (hosts with clocks set by NTP)."""


class Outcome(NamedTuple):
    """What came of a capture: a trace per rank, and one line per thing that went wrong."""

    files: dict[int, Path]
    problems: list[str]
    start: int | None
    """First step by torch's count, where one was agreed."""
    apart: bool = False
    """Whether the traces do not begin together."""


class Ahead(NamedTuple):
    """Where torch's count of optimizer calls will be, from the records."""

    start: int
    calls_per_step: int


def ahead(ranks: list[Rank], seconds: float) -> Ahead | None:
    """A count that no rank reaches within `seconds`; None where some rank's records do not tell it."""
    latest, calls = 0, 1
    for rank in ranks:
        if rank.ring is None:
            return None
        try:
            values = rings.tail(rank.ring, 600).records.values
        except (OSError, ValueError):
            return None
        count, step = values["profiler_step"], values["step"]
        known = np.flatnonzero((count != UNKNOWN) & (count > 0))
        lengths = values["step_time_ns"][values["step_time_ns"] > 0]
        if not len(known) or not len(lengths):
            return None
        first, last = known[0], known[-1]
        if step[last] > step[first]:
            calls = max(calls, round((count[last] - count[first]) / (step[last] - step[first])))
        since = int(step[-1] - step[last]) * calls
        fastest = max(1e6, float(np.quantile(lengths, 0.1)))
        latest = max(latest, int(count[last]) + since + calls * math.ceil(seconds * 1e9 / fastest))
    return Ahead(latest + 1, calls)


def capture(
    sockets: Path, folder: Path, ranks: list[Rank], steps: int, extra: dict[str, bool], seconds: float
) -> Outcome:
    """Capture `steps` steps; `ranks` empty: every rank that asks. Traces lie in `folder` as rank00003.json."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    agreed = ahead(ranks, ASK_S + 1.0) if ranks else None
    if agreed is not None:
        return _once(sockets, folder, ranks, Asked(steps, agreed, 0, extra), seconds)
    for roundup in ROUNDUPS:
        outcome = _once(sockets, folder, ranks, Asked(steps, None, roundup, extra), seconds)
        if not outcome.apart:
            break
    return outcome


class Asked(NamedTuple):
    """What every rank is told."""

    steps: int
    agreed: Ahead | None
    roundup: int
    """Where no step is agreed: each rank begins at the next multiple of this."""
    extra: dict[str, bool]

    @property
    def calls(self) -> int:
        """Optimizer calls per step."""
        return self.agreed.calls_per_step if self.agreed else 1


def _once(sockets: Path, folder: Path, ranks: list[Rank], asked: Asked, seconds: float) -> Outcome:
    target = folder / "trace.json"
    start = asked.agreed.start if asked.agreed else None
    text = kineto_ipc.options(target, asked.steps * asked.calls, start, asked.roundup, asked.extra)
    mark = sockets / _guard.MARK
    mark.touch()
    handing = HandOut(text, target, {r.process: r.rank for r in ranks}, again=start is None)
    try:
        for _ in kineto_ipc.hand_out(sockets, handing.answer, handing.done, seconds):
            pass
    finally:
        mark.unlink(missing_ok=True)
    return _finished(folder, handing, ranks, asked, handing.problems())


def _finished(folder: Path, handing: HandOut, ranks: list[Rank], asked: Asked, problems: list[str]) -> Outcome:
    files, starts = {}, {}
    start = asked.agreed.start if asked.agreed else None
    for process, rank in handing.sent.items():
        path = handing.file(process)
        if path.exists():
            files[rank] = folder / f"rank{rank:05d}.json"
            first = 1 if start is None else start + 1
            found = finishing.finish(path, files[rank], rank, _world(process, ranks), first, asked.calls)
            starts[rank] = found.start_ns
            if found.steps_count not in (None, asked.steps):
                problems.append(f"rank {rank}: {found.steps_count} steps were recorded; {asked.steps} were asked for")
    apart = _apart(starts)
    return Outcome(files, problems + apart, start, bool(apart))


def _apart(starts: dict[int, int | None]) -> list[str]:
    """Whether the traces begin together."""
    known = [s for s in starts.values() if s is not None]
    spread_ns = max(known, default=0) - min(known, default=0)
    if spread_ns <= TOGETHER_NS:
        return []
    return [f"the traces begin {spread_ns / 1e6:.0f} ms apart: the ranks were not at the same step; capture again"]


class HandOut:
    """Who gets the configuration, and who has answered with a trace.

    A process that has not stepped yet refuses, and nothing tells a refusal from waiting for its step: with `again` it
    is asked anew now and then, which torch ignores while a request waits.
    """

    def __init__(self, text: str, target: Path, wanted: Mapping[int, int], again: bool) -> None:
        self.text, self.target, self.wanted, self.again = text, target, dict(wanted), again
        self.sent: dict[int, int] = {}
        self.busy: set[int] = set()
        self._known: dict[int, int | None] = {}
        self._at: dict[int, float] = {}
        self._working: set[int] = set()
        self._began = time.monotonic()

    def file(self, process: int) -> Path:
        """Where the trace of a process comes."""
        return kineto_ipc.file_of(self.target, process)

    def answer(self, request: kineto_ipc.Request) -> str:
        """Configuration for a process that asks, or nothing."""
        process, now = request.pids[0], time.monotonic()
        rank = self.wanted.get(process) if self.wanted else self._rank(request.pids)
        if rank is None or (not self.again and now - self._began > 2 * ASK_S):
            return ""
        if request.busy:
            (self._working if process in self.sent else self.busy).add(process)
            return ""
        self.busy.discard(process)
        if process in self.sent:
            waiting = process not in self._working and not self.file(process).exists()
            if not (self.again and waiting and now - self._at[process] > AGAIN_S):
                return ""
        self.sent[process], self._at[process] = rank, now
        return self.text

    def done(self) -> bool:
        """Whether every trace is there, or none can come any more."""
        missing = [p for p in self.sent if not self.file(p).exists() and Path(f"/proc/{p}").exists()]
        if missing or not self.sent:
            return False
        if not self.again:
            late = time.monotonic() - self._began > 2 * ASK_S
            return late or len(self.sent) == len(self.wanted)
        expected = len(self.wanted) or _number(environment(next(iter(self.sent))), b"LOCAL_WORLD_SIZE")
        return expected is None or len(self.sent) >= expected or time.monotonic() - self._began > 4 * ASK_S

    def problems(self) -> list[str]:
        """One line per rank without a trace."""
        found = []
        for process, rank in sorted(self.wanted.items(), key=lambda item: item[1]):
            if process not in self.sent:
                why = "its own profiler runs; ours was not started" if process in self.busy else "did not ask in time"
                found.append(f"rank {rank}: {why}")
        for process, rank in sorted(self.sent.items(), key=lambda item: item[1]):
            if not self.file(process).exists():
                why = "not in time; does it step?" if Path(f"/proc/{process}").exists() else "the process ended"
                found.append(f"rank {rank}: no trace came ({why})")
        if not self.sent and not self.wanted:
            found.append(
                "no rank asked for a configuration: is the job running, with KINETO_USE_DAEMON=1 set at its start?"
            )
        return found

    def _rank(self, pids: tuple[int, ...]) -> int | None:
        process = pids[0]
        if process not in self._known:
            self._known[process] = rank_of(pids)
        return self._known[process]


def rank_of(pids: tuple[int, ...]) -> int | None:
    """Rank of a process by its environment; None for launchers and for workers below a rank."""
    rank = _number(environment(pids[0]), b"RANK")
    if rank is None:
        return None
    for above in pids[1:]:
        if _number(environment(above), b"RANK") == rank and _has_torch(above):
            return None
    return rank


def environment(process: int) -> dict[bytes, bytes]:
    """What a process of ours was started with; empty where it cannot be read."""
    try:
        data = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return {}
    return dict(item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)


def _number(given: Mapping[bytes, bytes], name: bytes) -> int | None:
    text = given.get(name, b"")
    return int(text) if text.isdigit() and len(text) < 9 else None


def _has_torch(process: int) -> bool:
    try:
        return b"libtorch" in Path(f"/proc/{process}/maps").read_bytes()
    except OSError:
        return False


def _world(process: int, ranks: list[Rank]) -> int | None:
    told = next((r.world_size for r in ranks if r.process == process), None)
    return told if told is not None else _number(environment(process), b"WORLD_SIZE")


def sockets_of(process: int) -> Path | None:
    """The folder in which a process looks for its configuration, if it was started with one."""
    given = environment(process)
    folder = given.get(b"KINETO_IPC_SOCKET_DIR")
    if folder and given.get(b"KINETO_USE_DAEMON"):
        with contextlib.suppress(OSError):
            path = Path(os.fsdecode(folder))
            return path if path.is_dir() else None
    return None
