"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Traces and other files of the job: files, folders, globs, tar or zip archives, s3:// or gs:// addresses.",
        show_default=False,
    ),
]
Ranks = Annotated[str | None, typer.Option(metavar="0,4-7", help="Look at these ranks only.", show_default=False)]
Steps = Annotated[
    str | None, typer.Option(metavar="A:B", help="Look at steps A to B only, both ends in.", show_default=False)
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes that read large files.", show_default="one per core")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no summary: exit code and files only.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 when some input was unusable.")]
