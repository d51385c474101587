"""Capture the same steps of a running job: which ranks, which way, how much is allowed.

Kineto's own channel where the job was started with it, else the hook. Bounded in steps, ranks, time and disk: a capture
is refused where the disk could not hold it several times over.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from diagnose.errors import UsageError
from diagnose.live import hook_capture, kineto_capture, places, watching
from diagnose.live.kineto_capture import Outcome
from diagnose.live.ranks import Found, Rank, state

MOST_STEPS = 50
MOST_CAPTURES = 100
BYTES_PER_STEP = 50 << 20
"""Of a rank's trace: a step of a large model; public traces reach this."""
LEAST_FREE_RATIO = 0.05


class Wish(NamedTuple):
    """What is asked for."""

    steps: int = 3
    ranks: str = ""
    """Numbers as in `0,4-7`, and `slowest`; empty: all."""
    via: str = "auto"
    """auto | kineto | hook"""
    extra: tuple[str, ...] = ()
    """Of shapes, stack, flops, modules."""
    seconds: float = 120.0


def capture(run: Path, found: Found, sockets: Path | None, wish: Wish, prefix: str = "") -> tuple[Path, Outcome]:
    """Folder of the capture and what came of it. UsageError where it cannot be asked for."""
    if not 1 <= wish.steps <= MOST_STEPS:
        raise UsageError(f"--steps {wish.steps}: expected 1 to {MOST_STEPS}; long captures fill disks")
    ranks = chosen(found, wish.ranks)
    if not ranks and places.hooked(run):
        raise UsageError(f"{run}: no rank has ended a step yet, or all have ended; try again once training steps")
    folder = _folder(run, prefix)
    _check_room(folder.parent, wish.steps, max(1, len(ranks)))
    extra = dict.fromkeys(wish.extra, True)
    via = wish.via if wish.via != "auto" else "kineto" if sockets is not None else "hook"
    if via == "kineto":
        if sockets is None:
            raise UsageError("the job was not started with KINETO_USE_DAEMON=1; use --via hook, or launch it anew")
        return folder, kineto_capture.capture(sockets, folder, ranks, wish.steps, extra, wish.seconds)
    if not ranks:
        raise UsageError("no rank has a hook; start the job with: diagnose launch")
    lengths = [r["step_ns"] for r in watching.rows(found) if r["step_ns"]]
    step_ns = min(lengths, default=None)
    return folder, hook_capture.capture(folder, ranks, wish.steps, extra, wish.seconds, step_ns)


def chosen(found: Found, wanted: str) -> list[Rank]:
    """Living ranks by number, or the one that stands out; UsageError for a rank that is not there."""
    alive = [r for r in found.ranks if state(r) not in ("dead", "ended")]
    if not wanted or not found.ranks:
        return alive
    numbers: set[int] = set()
    for word in wanted.split(","):
        if word.strip() == "slowest":
            slow = watching.slowest(watching.rows(found))
            numbers |= {slow["rank"]} if slow is not None else set()
            continue
        first, _, last = word.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UsageError(f"--ranks {wanted}: expected numbers such as 0,4-7, or slowest")
        numbers |= set(range(int(first), min(int(last or first), 1 << 20) + 1))
    missing = numbers - {r.rank for r in alive}
    if missing:
        raise UsageError(f"--ranks {wanted}: rank {min(missing)} does not run here")
    return [r for r in alive if r.rank in numbers] or alive[:1]


def running(found: Found, wanted: str) -> list[Rank]:
    """As `chosen`; UsageError where no rank is left to be asked."""
    ranks = chosen(found, wanted)
    if not ranks:
        raise UsageError("no rank with a hook is running: the job has ended, or has not ended a step yet")
    return ranks


def _folder(run: Path, prefix: str) -> Path:
    captures = run / "captures"
    captures.mkdir(mode=0o700, parents=True, exist_ok=True)
    if len(list(captures.iterdir())) >= MOST_CAPTURES:
        raise UsageError(f"{captures}: holds {MOST_CAPTURES} captures; remove some")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (f"{prefix}{stamp}" + (f"-{n}" if n else "") for n in range(MOST_CAPTURES + 1))
    return next(captures / name for name in names if not (captures / name).exists())


def _check_room(folder: Path, steps: int, ranks: int) -> None:
    disk = shutil.disk_usage(folder)
    needed = steps * ranks * BYTES_PER_STEP
    if disk.free < needed or disk.free < LEAST_FREE_RATIO * disk.total:
        raise UsageError(
            f"{folder}: {disk.free >> 20:,} MiB free; {steps} steps of {ranks} ranks may need {needed >> 20:,} MiB; "
            "take fewer, or free some"
        )
