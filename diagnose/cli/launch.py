"""`diagnose launch`: start an unchanged training command with the live hook in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from diagnose.errors import UsageError

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def command(
    context: typer.Context,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Folder for records.", show_default="diagnose-run-DATE-TIME"),
    ] = None,
    hook: Annotated[bool, typer.Option(help="Record every step; without, only captures on request.")] = True,
    kineto: Annotated[bool, typer.Option(help="Let Kineto answer to requests for captures.")] = True,
    watch: Annotated[
        bool, typer.Option("--watch", help="Capture by itself, once in a while, when a step record looks wrong.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing, not even where the records lie.")] = False,
) -> None:
    """Start a training command, unchanged, so that it leaves evidence: diagnose launch -- torchrun ... train.py

    Its output and exit code pass through. Watch it with `diagnose attach DIR`, diagnose it with `diagnose run DIR`.
    """
    import os
    import time

    from diagnose.live import launching

    words = context.args
    if not words:
        raise UsageError("launch: found no command; expected one after --: diagnose launch -- torchrun train.py")
    folder = run or Path(os.environ.get("DIAGNOSE_RUN") or time.strftime("diagnose-run-%Y%m%d-%H%M%S"))
    made = launching.plan(folder, os.environ, hook, kineto)
    if not quiet:
        print(f"diagnose: records go to {folder}; look on with: diagnose attach {folder}", file=sys.stderr)
    code = launching.run(words, made, watch=watch)
    if code and not quiet:
        print(f"diagnose: the job ended with exit code {code}; what it left: {folder}", file=sys.stderr)
        print(f"diagnose: find out why with: diagnose run {folder}", file=sys.stderr)
    raise typer.Exit(code)
