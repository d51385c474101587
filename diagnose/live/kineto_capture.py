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
ROUNDUP_STEPS = 50
TOGETHER_NS = 50_000_000
"""Traces of one step begin closer together than this (hosts with clocks set by NTP)."""


class Outcome(NamedTuple):
    """What came of a capture: a trace per rank, and one line per thing that went wrong."""

    files: dict[int, Path]
    problems: list[str]
    start: int | None
    """First step by torch's count, where one was agreed."""


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
    target = folder / "trace.json"
    text = kineto_ipc.options(
        target, steps * (agreed.calls_per_step if agreed else 1), agreed.start if agreed else None, ROUNDUP_STEPS, extra
    )
    mark = sockets / _guard.MARK
    mark.touch()
    try:
        round_ = _HandOut(text, {r.process: r.rank for r in ranks})
        for _ in kineto_ipc.hand_out(sockets, round_.answer, round_.done, ASK_S * 2):
            pass
        sent, busy = round_.sent, round_.busy
        missing = sorted(set(round_.wanted.values()) - set(sent.values())) if ranks else []
        problems = [f"rank {r}: its own profiler runs; ours was not started" for r in sorted(busy)]
        problems += [f"rank {r}: did not ask for a configuration in time" for r in missing if r not in busy]
        waiting = {process: kineto_ipc.file_of(target, process) for process in sent}
        lost = _wait(waiting, seconds)
    finally:
        mark.unlink(missing_ok=True)
    problems += [f"rank {sent[p]}: no trace came ({why})" for p, why in lost.items()]
    files, starts = {}, {}
    first = agreed.start + 1 if agreed else 1
    for process, path in waiting.items():
        if process not in lost:
            rank = sent[process]
            files[rank] = folder / f"rank{rank:05d}.json"
            world, calls = _world(process, ranks), agreed.calls_per_step if agreed else 1
            found = finishing.finish(path, files[rank], rank, world, first, calls)
            starts[rank] = found.start_ns
            if found.steps_count not in (None, steps):
                problems.append(f"rank {rank}: {found.steps_count} steps were recorded; {steps} were asked for")
    return Outcome(files, problems + _apart(starts), agreed.start if agreed else None)


def _apart(starts: dict[int, int | None]) -> list[str]:
    """Whether the traces begin together."""
    known = [s for s in starts.values() if s is not None]
    spread_ns = max(known, default=0) - min(known, default=0)
    if spread_ns <= TOGETHER_NS:
        return []
    return [f"the traces begin {spread_ns / 1e6:.0f} ms apart: the ranks were not at the same step; capture again"]


class _HandOut:
    """Who gets the configuration: each wanted process once."""

    def __init__(self, text: str, wanted: Mapping[int, int]) -> None:
        self.text, self.wanted = text, dict(wanted)
        self.sent: dict[int, int] = {}
        self.busy: set[int] = set()
        self._known: dict[int, int | None] = {}
        self._began = time.monotonic()

    def answer(self, request: kineto_ipc.Request) -> str:
        process = request.pids[0]
        rank = self.wanted.get(process) if self.wanted else self._rank(request.pids)
        if rank is None or process in self.sent:
            return ""
        if request.busy:
            self.busy.add(rank)
            return ""
        self.busy.discard(rank)
        self.sent[process] = rank
        return self.text

    def done(self) -> bool:
        if self.wanted:
            return len(self.sent) == len(self.wanted)
        expected = next((_number(environment(p), b"LOCAL_WORLD_SIZE") for p in self.sent), None)
        return expected is not None and len(self.sent) >= expected

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


def _wait(waiting: dict[int, Path], seconds: float) -> dict[int, str]:
    """Processes whose trace did not come, and why."""
    until = time.monotonic() + seconds
    lost: dict[int, str] = {}
    while len(lost) + sum(p.exists() for p in waiting.values()) < len(waiting) and time.monotonic() < until:
        for process, path in waiting.items():
            if process not in lost and not path.exists() and not Path(f"/proc/{process}").exists():
                time.sleep(0.2)  # it may have been written at the end
                if not path.exists():
                    lost[process] = "the process ended"
        time.sleep(0.1)
    late = {process: "not in time" for process, path in waiting.items() if process not in lost and not path.exists()}
    return lost | late


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
