"""`diagnose attach`: look at a running job, capture it, diagnose it, without stopping it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from diagnose.errors import UsageError

ACTIONS = ("live", "status", "capture", "collectives", "memory", "stacks", "report", "overhead", "detach")


class Via(StrEnum):
    """Way of a capture."""

    auto = "auto"
    kineto = "kineto"
    hook = "hook"


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN | PID] [ACTION]",
        help=f"The run folder or a process of the job (default: the only one here); what to do: {', '.join(ACTIONS)}.",
        show_default=False,
    ),
]


def command(  # noqa: PLR0913, PLR0917  (one parameter per option)
    words: Words = None,
    steps: Annotated[int, typer.Option(help="capture: how many steps.")] = 3,
    ranks: Annotated[str, typer.Option(metavar="0,4-7,slowest", help="These ranks only.", show_default="all")] = "",
    via: Annotated[Via, typer.Option(help="capture: Kineto's own channel, or the hook.")] = Via.auto,
    shapes: Annotated[bool, typer.Option("--shapes", help="capture: record shapes (keeps tensors alive).")] = False,
    stack: Annotated[bool, typer.Option("--stack", help="capture: record Python stacks (dear).")] = False,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="memory: dump the allocator's state, too.")] = False,
    pairs: Annotated[int, typer.Option(help="overhead: pairs of blocks of ten steps.")] = 100,
    once: Annotated[bool, typer.Option("--once", help="live: print once and leave.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask these hosts over ssh, one name a line.", show_default=False)
    ] = None,
    no_diagnosis: Annotated[bool, typer.Option("--no-diagnosis", help="capture: only collect the traces.")] = False,
) -> None:
    """Attach to a running job: live view, captures on request, diagnosis while training goes on."""
    from diagnose.cli import _attached, _attached_job, _ranks_table

    target, action = _split(words or [])
    options = _attached_job.Options(
        steps, ranks, via.value, tuple(n for n, on in (("shapes", shapes), ("stack", stack)) if on), snapshot, pairs,
        once, json, not no_diagnosis,
    )  # fmt: skip
    if hosts is not None:
        from diagnose.live import hosts as remote

        if action not in ("live", "status"):
            raise UsageError(f"attach --hosts: found {action}; expected live or status")
        names = remote.names(hosts)
        _ranks_table.print_hosts(remote.ask(names, [*(words or []), "--once", "--json"]), json)
        return
    raise typer.Exit(_attached.act(_attached_job.job(target), action, options))


def _split(words: list[str]) -> tuple[str | None, str]:
    match words:
        case []:
            return None, "live"
        case [word]:
            return (None, word) if word in ACTIONS else (word, "live")
        case [target, action] if action in ACTIONS:
            return target, action
    raise UsageError(f"attach {' '.join(words)}: expected a run folder or process, and one of {', '.join(ACTIONS)}")
