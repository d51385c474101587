"""The job that `diagnose attach` is about: a run folder, a process, or the only one on this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from diagnose.errors import UsageError
from diagnose.live import kineto_capture, places, ranks
from diagnose.live.ranks import Found


class Options(NamedTuple):
    """As on the command line."""

    steps: int
    ranks: str
    via: str
    extra: tuple[str, ...]
    snapshot: bool
    pairs: int
    once: bool
    json: bool
    diagnosis: bool


class Job(NamedTuple):
    """A running job: its folder, and where Kineto is asked (None: it cannot be)."""

    run: Path
    sockets: Path | None

    def found(self) -> Found:
        """Its ranks as they are now."""
        return ranks.of_run(self.run)


def job(target: str | None) -> Job:
    """The job that a folder or a process belongs to, or the only one on this host. UsageError where there is none."""
    if target is None:
        run = os.environ.get("DIAGNOSE_RUN")
        return _of_run(Path(run) if run else _only_one())
    if Path(target).is_dir():
        return _of_run(Path(target))
    if not target.isdigit():
        raise UsageError(f"{target}: no such folder; expected a run folder or the number of a process")
    process = int(target)
    folder = ranks.of_process(process)
    if folder is not None and folder.is_dir():
        return _of_run(folder)
    sockets = kineto_capture.sockets_of(process)
    if sockets is None:
        what = "a process that was started without diagnose launch and without KINETO_USE_DAEMON=1"
        there = what if Path(f"/proc/{process}").exists() else "no such process"
        raise UsageError(f"{process}: found {there}; start the job with: diagnose launch -- COMMAND")
    return Job(Path(f"diagnose-run-{process}").absolute(), sockets)


def _only_one() -> Path:
    alive = [
        r for r in places.runs_here() if any(ranks.state(x) in ("alive", "stopped") for x in ranks.of_run(r).ranks)
    ]
    if len(alive) == 1:
        return alive[0]
    if not alive:
        raise UsageError("attach: found no running job of yours on this host; give its run folder or a process")
    raise UsageError(f"attach: found {len(alive)} running jobs ({', '.join(map(str, alive[:4]))}); name one")


def _of_run(run: Path) -> Job:
    found = ranks.of_run(run)
    for rank in found.ranks:
        if rank.here and ranks.state(rank) != "dead" and (sockets := kineto_capture.sockets_of(rank.process)):
            return Job(run.absolute(), sockets)
    return Job(run.absolute(), places.told(run))
