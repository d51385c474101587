"""`diagnose rules`: what is checked, why, and whether a rule of yours is well-formed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.findings import Rule


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID | check DIR]", help="A rule to explain, or `check` and a folder of rules.", show_default=False
        ),
    ] = None,
) -> None:
    """List the rules, explain one (`diagnose rules comm-share`), or validate your own (`diagnose rules check DIR`)."""
    match what or []:
        case []:
            _list()
        case ["check", folder]:
            _check(Path(folder))
        case [rule]:
            _explain(rule)
        case words:
            raise UsageError(f"rules {' '.join(words)}: expected nothing, a rule id, or: check DIR")


def _list() -> None:
    from rich.console import Console
    from rich.table import Table

    from diagnose import pipeline
    from diagnose.findings import SYMPTOMS

    by_symptom: dict[str, list[Rule]] = {symptom: [] for symptom in SYMPTOMS}
    for rule in pipeline.rules():
        by_symptom[rule.symptom].append(rule)
    console = Console(highlight=False)
    for symptom, rules in by_symptom.items():
        console.print(f"[bold]{symptom}[/]  {SYMPTOMS[symptom]}")
        grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
        for rule in rules:
            grid.add_row(rule.id, rule.severity, rule.title)
        console.print(grid if rules else "  [dim]no rules in this version[/]")


def _explain(name: str) -> None:
    from diagnose import engine, pipeline

    known = {rule.id: rule for rule in pipeline.rules()}
    if name not in known:
        raise UsageError(f"rule {name}: not known; `diagnose rules` lists all")
    print(engine.explain(known[name]))


def _check(folder: Path) -> None:
    from diagnose import engine, pipeline

    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; expected a folder of SYMPTOM/RULE-ID.sql files")
    rules = engine.load_rules([folder])
    engine.bind(rules, pipeline.empty_tables())
    print(f"{len(rules)} rules in {folder} are well-formed")
