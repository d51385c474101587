"""`diagnose --version`."""

from __future__ import annotations

from typing import Annotated

import typer

from diagnose import __version__


def _print(wanted: bool) -> None:
    if wanted:
        print(f"diagnose {__version__}")
        raise typer.Exit


def show_version(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print, is_eager=True)
    ] = False,
) -> None:
    """Where the step time and the memory of a distributed training job went, why, and what to change first."""
