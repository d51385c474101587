"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
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


class Severity(StrEnum):
    """Lowest severity that makes the exit code 1."""

    warning = "warning"
    critical = "critical"


Job = Annotated[
    Path | None,
    typer.Option(help="job.toml with facts the files do not carry (layout, model, cluster).", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Folder for report.html and diagnosis.json.", show_default="diagnose-report"),
]
Json = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the diagnosis as JSON (- for stdout).", show_default=False)
]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the HTML report here.", show_default=False)]
RuleFolders = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="Rules of your own, added to ours.", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="RULE.PARAM=VALUE", help="Change a rule's threshold.", show_default=False),
]
FailOn = Annotated[
    Severity | None, typer.Option(help="Exit with 1 on a finding this severe or worse.", show_default=False)
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="List every finding and every skipped rule.")]
