"""`diagnose run`: the whole diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from diagnose.cli._options import (
    FailOn,
    Html,
    Job,
    Json,
    Output,
    Overrides,
    Paths,
    Quiet,
    Ranks,
    RuleFolders,
    Severity,
    Steps,
    Strict,
    Verbose,
    Workers,
)
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.findings import Diagnosis

DEFAULT_FOLDER = Path("diagnose-report")


def command(  # noqa: PLR0913, PLR0917  (one parameter per option)
    paths: Paths,
    job: Job = None,
    output: Output = None,
    json: Json = None,
    html: Html = None,
    steps: Steps = None,
    ranks: Ranks = None,
    rules: RuleFolders = None,
    set_: Overrides = None,
    fail_on: FailOn = None,
    workers: Workers = None,
    strict: Strict = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Diagnose a slow job from its traces: verdict, JSON and a self-contained HTML report.

    Without -o, --json or --html the report goes to diagnose-report/.
    """
    from diagnose import pipeline, selection
    from diagnose.cli import _outputs, _progress

    chosen = selection.parse(ranks, steps)
    _check_outputs(json, html)
    with _progress.reading(quiet) as progress:
        diagnosis = pipeline.run(
            paths,
            job,
            selected=chosen,
            rule_folders=rules or (),
            overrides=_overrides(set_ or []),
            workers=workers,
            progress=progress,
        )
    _outputs.print_unusable(diagnosis)
    if not _outputs.usable(diagnosis):
        raise typer.Exit(2)
    folder = output or (None if json or html else DEFAULT_FOLDER)
    written = _outputs.write(diagnosis, folder, json, html)
    if not quiet:
        _outputs.summary(diagnosis, written, to_stderr=json == "-", verbose=verbose)
    if written.problem and (output or json or html):  # a place the user named: a script must notice
        raise typer.Exit(2)
    raise typer.Exit(_exit_code(diagnosis, fail_on, strict))


def _check_outputs(json: str | None, html: Path | None) -> None:
    if html is not None and str(html) == "-":
        raise UsageError("--html -: the page goes to a file; expected its name")
    if json is not None and html is not None and Path(json).absolute() == html.absolute():
        raise UsageError(f"--json and --html both name {json}; give each a file of its own")


def _overrides(pairs: list[str]) -> dict[str, str]:
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or "." not in key:
            raise UsageError(f"--set {pair}: expected RULE.PARAM=VALUE, such as comm-share.min_share_ratio=0.1")
        result[key.strip()] = value.strip()
    return result


def _exit_code(diagnosis: Diagnosis, fail_on: Severity | None, strict: bool) -> int:
    from diagnose.findings import SEVERITIES

    if strict and any(i["status"] == "unusable" for i in diagnosis.inputs):
        return 3
    if fail_on is None:
        return 0
    least = SEVERITIES.index(fail_on.value)
    return int(any(SEVERITIES.index(f.severity) >= least for f in diagnosis.findings))
