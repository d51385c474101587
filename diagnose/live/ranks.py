"""The ranks of a run as their files tell: who they are, where they are reached, and whether they are alive.

Everything read here was written by the job, so nothing is trusted: sizes and types are checked, a socket counts only if
it is ours, and a path is only ever opened to read. On this host /proc tells what a process does, without asking it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any, NamedTuple

from diagnose.live import _writer

MOST_BYTES = 64 << 10
_NAME = re.compile(r"\.rank(\d{5,7})\.json")
_ATTEMPT = re.compile(r"attempt(\d{3,6})")
STATES = {"T": "stopped", "t": "stopped", "D": "blocked", "Z": "dead", "X": "dead"}


class Rank(NamedTuple):
    """One rank of the latest attempt."""

    rank: int
    world_size: int | None
    host: str
    process: int
    process_start: int
    ring: Path | None
    control: Path | None
    torch: Path | None
    ended: bool
    here: bool
    """Whether its process would be visible in this host's /proc."""


class Found(NamedTuple):
    """Ranks in order, and one line per file that could not be used."""

    attempt: Path | None
    ranks: list[Rank]
    problems: list[str]


def of_run(run: Path) -> Found:
    """Ranks of the latest attempt in the run folder."""
    attempts = sorted(p for p in run.iterdir() if _ATTEMPT.fullmatch(p.name) and p.is_dir()) if run.is_dir() else []
    if not attempts:
        return Found(None, [], [])
    folder, found, problems = attempts[-1], [], []
    boot, host = _writer.text_of("/proc/sys/kernel/random/boot_id"), socket.gethostname()
    for entry in os.scandir(folder):
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        try:
            found.append(_rank(folder, int(match[1]), _json(Path(entry.path)), boot, host))
        except ValueError as error:
            problems.append(f"{entry.path}: {error}; left out")
    return Found(folder, sorted(found, key=lambda r: r.rank), sorted(problems))


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    if len(data) > MOST_BYTES:
        raise ValueError("found more than 64 KiB; expected the description of a rank")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("found no JSON; expected the description of a rank") from None
    if not isinstance(found, dict) or found.get("diagnose_rank") != 1:
        raise ValueError("expected the description of a rank")
    return found


def _rank(folder: Path, number: int, row: dict[str, Any], boot: str, host: str) -> Rank:
    whole = {k: row.get(k) for k in ("rank", "world_size", "process", "process_start")}
    for name, value in whole.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
            raise ValueError(f"found {name} that is no whole number")
    if whole["rank"] != number:
        raise ValueError("its rank is not the one its name says")
    there = str(row.get("host"))
    name = "".join(c if c.isprintable() else "?" for c in there)[:64]
    here = (
        row.get("boot") == boot and there == host and row.get("pid_namespace") == _writer.link_of("/proc/self/ns/pid")
    )
    return Rank(
        number, whole["world_size"], name, whole["process"] or 0, whole["process_start"] or 0,
        _ring(folder, number, row.get("ring")), _socket(row.get("control")), _socket(row.get("torch")),
        row.get("ended_ns") is not None, here,
    )  # fmt: skip


def _ring(folder: Path, number: int, told: object) -> Path | None:
    """The ring in the run folder, else where the rank says, if that is a plain file of ours."""
    usual = folder / f"rank{number:05d}.ring"
    if usual.is_file():
        return usual
    if isinstance(told, str) and len(told) < 4096 and "\0" not in told and ".." not in Path(told).parts:
        path = Path(told)
        try:
            status = path.lstat()
        except OSError:
            return None
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
            return path
    return None


def _socket(told: object) -> Path | None:
    if not isinstance(told, str) or len(told) > 107 or "\0" in told or ".." in Path(told).parts:
        return None
    try:
        status = Path(told).lstat()
    except OSError:
        return None
    return Path(told) if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid() else None


def state(rank: Rank) -> str:
    """ended | dead | stopped | blocked | alive, or `elsewhere` where this host cannot see the process."""
    if rank.ended:
        return "ended"
    if not rank.here:
        return "elsewhere"
    if _writer.start_of(rank.process) != rank.process_start:
        return "dead"
    try:
        letter = Path(f"/proc/{rank.process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "dead"
    return STATES.get(letter, "alive")


def of_process(process: int) -> Path | None:
    """The run folder that a process was started with."""
    try:
        data = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return None
    for item in data.split(b"\0"):
        if item.startswith(b"DIAGNOSE_RUN="):
            return Path(os.fsdecode(item.partition(b"=")[2]))
    return None
