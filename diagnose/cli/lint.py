"""`diagnose lint`: can these files be trusted?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from diagnose.cli._options import Paths, Quiet, Strict, Workers

if TYPE_CHECKING:
    from rich.console import Console


def command(paths: Paths, workers: Workers = None, strict: Strict = False, quiet: Quiet = False) -> None:
    """Check trace quality only: every file ok, repaired, partial or unusable, with byte offsets.

    Exit code 0 when something is usable, 2 when nothing is, 3 with --strict when some file is not.
    """
    from rich.console import Console

    from diagnose import pipeline, summary
    from diagnose.cli import _progress

    with _progress.reading(quiet) as progress:
        tables = pipeline.derive(pipeline.read(paths, workers, progress), workers=workers)
    inputs, quality = summary.inputs(tables), summary.quality(tables)
    if not quiet:
        _print(Console(highlight=False), inputs, quality)
    bad = [i for i in inputs if i["status"] == "unusable"]
    if len(bad) == len(inputs):
        raise typer.Exit(2)
    raise typer.Exit(3 if strict and bad else 0)


def _print(console: Console, inputs: list[dict[str, Any]], quality: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    colour = {"ok": "green", "repaired": "yellow", "partial": "yellow", "unusable": "red"}
    for item in inputs:
        rank = "unknown rank" if item["rank"] is None or item["rank"] < 0 else f"rank {item['rank']}"
        facts = f"{item['kind']}, {rank}, {item['events_count'] or 0:,} events" if item["status"] != "unusable" else ""
        status = item["status"]
        console.print(
            f"[{colour[status]}]{status:9}[/] {escape(item['path'])}  [dim]{escape(facts)}[/]", soft_wrap=True
        )
        mine = [q for q in quality if q["path"] == item["path"] and q["rank"] in (item["rank"], None)]
        if status == "unusable" and not mine:
            console.print(f"          {escape(item['detail'])}", soft_wrap=True)
        for row in mine:
            place = f" at byte {row['byte_offset']:,}" if row.get("byte_offset") is not None else ""
            console.print(
                f"          {row['problem']} x {row['count']:,}{place}: {escape(row['detail'] or '')}", soft_wrap=True
            )
    for row in quality:
        if row["path"] is None:
            console.print(
                f"job       {row['problem']} x {row['count']:,}: {escape(row['detail'] or '')}", soft_wrap=True
            )
