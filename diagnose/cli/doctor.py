"""`diagnose doctor`: would a job started here leave evidence?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from diagnose.live.readiness import Check


def command(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where records would go.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check what evidence a job started here would leave, and the exact line to add where some is missing.

    Exit code 1 where something in the environment does harm, else 0.
    """
    import os

    from diagnose.live import readiness

    found = readiness.checks(os.environ, folder)
    if json:
        from json import dumps

        print(dumps([check._asdict() for check in found], indent=1))
    else:
        _print(found)
    raise typer.Exit(int(any(check.state == "harmful" for check in found)))


def _print(found: list[Check]) -> None:
    from rich.console import Console
    from rich.markup import escape

    colour = {"ok": "green", "missing": "yellow", "unknown": "yellow", "harmful": "red"}
    console = Console(highlight=False)
    for check in found:
        console.print(
            f"[{colour[check.state]}]{check.state:8}[/] {escape(check.what)}: {escape(check.seen)}", soft_wrap=True
        )
        if check.do:
            console.print(f"         [bold]{escape(check.do)}[/]", soft_wrap=True)
