"""What each action of `diagnose attach` does and prints."""

from __future__ import annotations

import json as codec
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.cli import _ranks_table as ranks_table
from diagnose.cli._attached_captures import capture, collectives, overhead, report
from diagnose.cli._attached_job import Job, Options
from diagnose.live import asking, capturing, ranks, watching
from diagnose.live.ranks import Rank
from diagnose.units import size

if TYPE_CHECKING:
    from rich.console import Console


def act(job: Job, action: str, options: Options) -> int:
    """Do it; the exit code."""
    return _ACTIONS[action](job, options)


def _live(job: Job, options: Options) -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if options.json:
        found = job.found()
        print(codec.dumps({"run": str(job.run), "ranks": watching.rows(found), "problems": found.problems}))
        return 0
    if options.once or not console.is_terminal:
        console.print(_table(job))
        return 0
    try:
        with Live(_table(job), console=console, refresh_per_second=2, screen=False) as view:
            while True:
                time.sleep(1.0)
                view.update(_table(job))
    except KeyboardInterrupt:
        return 0


def _table(job: Job) -> Any:
    found = job.found()
    return ranks_table.grid(str(job.run), watching.rows(found), found.problems)


def _status(job: Job, options: Options) -> int:
    found = job.found()
    rows = {r["rank"]: r for r in watching.rows(found)}
    answers = asking.ask_all(found.ranks, verb="status")
    result = []
    for rank, answer in zip(found.ranks, answers, strict=True):
        row = rows[rank.rank]
        steps = watching.ladder(rank, row)
        result.append({**row, **steps, "hook": answer})
    if options.json:
        print(codec.dumps({"run": str(job.run), "ranks": result, "problems": found.problems}))
        return 0
    console = _console()
    console.print(f"{job.run}: {len(result)} ranks; on-demand captures: {'Kineto' if job.sockets else 'hook only'}")
    for row in result:
        layers = ", ".join(name for name, answers_ in row["layers"].items() if answers_) or "none"
        hook = row["hook"]
        own = "" if "error" in hook else f"; hook {hook['hook_ratio']:.2%} of the step, history {hook['history']}"
        errors = f"; {hook['errors_count']} errors: {hook['errors'][-1]}" if hook.get("errors") else ""
        place = f"step {ranks_table.text(row['step'])}, {ranks_table.age(row['age_ns'])}"
        said = f"rank {row['rank']} ({row['state']}) {place}: {row['meaning']}; answers: {layers}{own}{errors}"
        console.print(said, markup=False, soft_wrap=True)
    for problem in found.problems:
        console.print(problem, markup=False, soft_wrap=True)
    return 0


def _memory(job: Job, options: Options) -> int:
    found = job.found()
    chosen = capturing.running(found, options.ranks)
    name = time.strftime("memory-%Y%m%d-%H%M%S")
    answers = asking.ask_all(chosen, 60.0, verb="memory", snapshot=options.snapshot, id=name)
    rows = {r["rank"]: r for r in watching.rows(found)}
    if options.json:
        print(codec.dumps({"ranks": [{"rank": r.rank, **a} for r, a in zip(chosen, answers, strict=True)]}))
        return 0
    for rank, answer in zip(chosen, answers, strict=True):
        if "error" in answer:
            print(f"rank {rank.rank}: {ranks_table.memory(rows[rank.rank])} ({answer['error']})")
            continue
        figures = ", ".join(
            f"{k.removesuffix('_bytes')} {size(v)}" for k, v in answer.items() if k.endswith("_bytes") and v >= 0
        )
        print(f"rank {rank.rank}: {figures}" + (f"; snapshot {answer['file']}" if "file" in answer else ""))
    return 0


def _stacks(job: Job, options: Options) -> int:
    chosen = capturing.running(job.found(), options.ranks)
    answers = asking.ask_all(chosen, verb="stacks")
    if options.json:
        print(codec.dumps({"ranks": [{"rank": r.rank, **a} for r, a in zip(chosen, answers, strict=True)]}))
        return 0
    for rank, answer in zip(chosen, answers, strict=True):
        print(f"rank {rank.rank} (process {rank.process})")
        if "error" in answer:
            print(
                f"  control socket: {answer['error']}; state {ranks.state(rank)}, in the kernel: {_wait_channel(rank)}"
            )
            print(f"  py-spy dump --nonblocking --pid {rank.process}   shows it without asking the process")
            continue
        for name, frames in answer["stacks"].items():
            print(f"  {name}")
            print("\n".join(f"    {frame}" for frame in frames))
    return 0


def _wait_channel(rank: Rank) -> str:
    try:
        return Path(f"/proc/{rank.process}/wchan").read_text("utf-8", "replace").strip() or "-"
    except OSError:
        return "unknown"


def _detach(job: Job, options: Options) -> int:
    chosen = capturing.running(job.found(), options.ranks)
    answers = asking.ask_all(chosen, verb="detach")
    for rank, answer in zip(chosen, answers, strict=True):
        print(f"rank {rank.rank}: {answer.get('error') or 'the hook is out; its files stay'}")
    return 0


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


_ACTIONS = {
    "live": _live, "status": _status, "capture": capture, "collectives": collectives, "memory": _memory,
    "stacks": _stacks, "report": report, "overhead": overhead, "detach": _detach,
}  # fmt: skip
