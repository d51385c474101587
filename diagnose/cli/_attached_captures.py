"""Actions of `diagnose attach` that take something from the job and judge it: captures, dumps, the cost of the hook."""

from __future__ import annotations

import json as codec
import os
import sys
import time
from pathlib import Path

from diagnose.cli._attached_job import Job, Options
from diagnose.errors import UsageError
from diagnose.live import asking, capturing
from diagnose.live.ranks import Rank
from diagnose.units import duration


def capture(job: Job, options: Options) -> int:
    """The same steps of all chosen ranks, and their diagnosis."""
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


def report(job: Job, options: Options) -> int:
    """Everything that was recorded so far."""
    _diagnose([str(job.run)], job.run / "report")
    return 0


def collectives(job: Job, options: Options) -> int:
    """What the flight recorders of all chosen ranks hold."""
    folder = job.run / "captures" / time.strftime("flight-%Y%m%d-%H%M%S")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    chosen, failed = capturing.running(job.found(), options.ranks), 0
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
    _print_last_calls(folder)
    _diagnose([str(folder)], folder / "report")
    return 0


def _print_last_calls(folder: Path) -> None:
    """How far each rank got: its newest calls, oldest rank first."""
    from diagnose import engine, pipeline

    sql = """SELECT rank, "group", count(*) AS calls_count, arg_max(op, ts_ns) AS last_op, max(seq) AS last_seq,
                    max(ts_ns) - min(max(ts_ns)) OVER () AS behind_first_ns
             FROM calls GROUP BY rank, "group" ORDER BY last_seq, rank"""
    for row in engine.query(pipeline.read([str(folder)], 1), sql).to_pylist():
        group = f", group {row['group']}" if row["group"] else ""
        print(f"rank {row['rank']}{group}: {row['calls_count']:,} calls kept, the last {row['last_op']} "
              f"(seq {row['last_seq']}), {duration(row['behind_first_ns'])} after the first rank's last")  # fmt: skip


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


def overhead(job: Job, options: Options) -> int:
    """What the hook costs in this job."""
    from diagnose.live import interval

    chosen = capturing.running(job.found(), options.ranks or "0")
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
