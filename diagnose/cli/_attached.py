"""What each action of `diagnose attach` does and prints."""

from __future__ import annotations

import json as codec
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.cli import _ranks_table as ranks_table
from diagnose.errors import UsageError
from diagnose.live import asking, capturing, kineto_capture, places, ranks, watching
from diagnose.live.ranks import Found, Rank
from diagnose.units import duration, size

if TYPE_CHECKING:
    from rich.console import Console


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


def _capture(job: Job, options: Options) -> int:
    wish = capturing.Wish(options.steps, options.ranks, options.via, options.extra)
    folder, outcome = capturing.capture(job.run, job.found(), job.sockets, wish)
    for problem in outcome.problems:
        print(f"diagnose: {problem}", file=sys.stderr)
    if not outcome.files:
        return 2
    if options.json:
        files = {str(rank): str(path) for rank, path in sorted(outcome.files.items())}
        print(
            codec.dumps({"folder": str(folder), "files": files, "problems": outcome.problems, "start": outcome.start})
        )
    else:
        print(f"captured {options.steps} steps of {len(outcome.files)} ranks in {folder}", file=sys.stderr)
    if options.diagnosis and not options.json:
        _diagnose([str(folder)], folder / "report")
    return 0


def _diagnose(paths: list[str], target: Path) -> None:
    """Read, judge, print; politely, for training goes on beside it."""
    from diagnose import pipeline
    from diagnose.cli import _outputs

    os.nice(10)
    diagnosis = pipeline.run(paths, workers=1)
    _outputs.print_unusable(diagnosis)
    written = _outputs.write(diagnosis, target, None, None)
    _outputs.summary(diagnosis, written, to_stderr=False, verbose=False)


def _report(job: Job, options: Options) -> int:
    _diagnose([str(job.run)], job.run / "report")
    return 0


def _collectives(job: Job, options: Options) -> int:
    folder = job.run / "captures" / time.strftime("flight-%Y%m%d-%H%M%S")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    chosen, failed = capturing.chosen(job.found(), options.ranks), 0
    for rank in chosen:
        data, why = _flight(rank, folder.name)
        if data:
            (folder / f"rank{rank.rank:05d}_flight.json").write_bytes(data)
        elif why:
            failed += 1
            print(f"diagnose: rank {rank.rank}: {why}", file=sys.stderr)
    if failed == len(chosen):
        return 2
    print(f"flight recorders of {len(chosen) - failed} ranks in {folder}", file=sys.stderr)
    _diagnose([str(folder)], folder / "report")
    return 0


def _flight(rank: Rank, name: str) -> tuple[bytes | None, str]:
    """Dump of a rank: from torch's server, which holds nothing up, else from the hook. Empty where it wrote a file."""
    path = rank.torch
    if path is None:
        told = asking.ask(rank, verb="serve").get("torch")
        path = Path(told) if isinstance(told, str) else None
    data = asking.torch_server(path, "fr_trace_json", 10.0) if path is not None else None
    if data:
        return data, ""
    answer = asking.ask(rank, 10.0, verb="collectives", id=name)
    return None, str(answer.get("error", ""))


def _memory(job: Job, options: Options) -> int:
    found = job.found()
    chosen = capturing.chosen(found, options.ranks)
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
    chosen = capturing.chosen(job.found(), options.ranks)
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


def _overhead(job: Job, options: Options) -> int:
    from diagnose.live import interval

    chosen = capturing.chosen(job.found(), options.ranks or "0")
    if not chosen:
        raise UsageError("overhead: found no running rank with a hook")
    rank = chosen[0]
    begun = asking.ask(rank, verb="overhead", pairs=options.pairs, block_steps=10)
    if "error" in begun:
        raise UsageError(f"rank {rank.rank}: {begun['error']}")
    print(
        f"rank {rank.rank}: {options.pairs} pairs of ten steps with the hook and ten without, in turns", file=sys.stderr
    )
    answer = begun
    while answer.get("running"):
        time.sleep(1.0)
        answer = asking.ask(rank, verb="blocks")
    found = interval.of_blocks(answer.get("blocks", []))
    own = asking.ask(rank, verb="status").get("hook_ratio")
    if found is None:
        print(f"diagnose: the measurement ended early ({answer.get('error', 'too few pairs')})", file=sys.stderr)
        return 2
    if options.json:
        print(codec.dumps({"rank": rank.rank, **found._asdict(), "hook_ratio": own}))
    else:
        print(f"step without the hook {duration(found.step_ns)}; with it {found.middle_ratio:+.2%} "
              f"[95 %: {found.low_ratio:+.2%}, {found.high_ratio:+.2%}] over {found.pairs_count} pairs; "
              f"its own timer: {own:.2%}")  # fmt: skip
    return 0


def _detach(job: Job, options: Options) -> int:
    chosen = capturing.chosen(job.found(), options.ranks)
    answers = asking.ask_all(chosen, verb="detach")
    for rank, answer in zip(chosen, answers, strict=True):
        print(f"rank {rank.rank}: {answer.get('error') or 'the hook is out; its files stay'}")
    return 0


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


_ACTIONS = {
    "live": _live, "status": _status, "capture": _capture, "collectives": _collectives, "memory": _memory,
    "stacks": _stacks, "report": _report, "overhead": _overhead, "detach": _detach,
}  # fmt: skip
