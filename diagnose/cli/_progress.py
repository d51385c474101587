"""Reading inputs: a progress bar on stderr with MB/s and time left; silent without a terminal or where it is short."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from diagnose.cli import _memory

SHORT_BYTES = 2 << 20
"""Inputs below this are read before a bar could be seen."""


@contextmanager
def reading(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback for (bytes read, bytes in all), or None where nothing should be shown."""
    _memory.return_freed()
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, visible=False)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=total >= SHORT_BYTES)
            if done >= total:
                bar.update(task, description="analysing")

        yield update
