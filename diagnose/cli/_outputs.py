"""Where a diagnosis goes: files, terminal. A folder that is not ours is never overwritten."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from diagnose.findings import Diagnosis

MARK = '<meta name="generator" content="diagnose'
"""Stands in the head of every report of ours; a report.html without it is somebody else's."""


class Written(NamedTuple):
    """Where the report went, or one line on why it could not be written."""

    report: Path | None = None
    problem: str = ""


def usable(diagnosis: Diagnosis) -> bool:
    """Whether any input gave something to analyse."""
    return any(i["status"] != "unusable" for i in diagnosis.inputs)


def print_unusable(diagnosis: Diagnosis) -> None:
    """One line on stderr per input that could not be used."""
    for item in diagnosis.inputs:
        if item["status"] == "unusable":
            print(f"diagnose: {item['path']}: {item['detail'] or 'cannot be used'}", file=sys.stderr)


def write(diagnosis: Diagnosis, folder: Path | None, json: str | None, html: Path | None) -> Written:
    """Write what was asked for. A file that cannot be written is one line, never a lost summary."""
    problems = []
    report = html
    if json == "-":
        sys.stdout.write(diagnosis.to_json() + "\n")
    elif json is not None:
        problems.append(_save(Path(json), diagnosis.to_json() + "\n"))
    page = _page(diagnosis) if (html or folder) else ""
    if html is not None:
        problems.append(_save(html, page))
    if folder is not None:
        report = folder / "report.html"
        problems.append(_save_folder(folder, page, diagnosis))
    problem = next((p for p in problems if p), "")
    if problem:
        print(f"diagnose: {problem}", file=sys.stderr)
    return Written(None if problem else report, problem)


def _page(diagnosis: Diagnosis) -> str:
    from diagnose import report

    return report.page(diagnosis)


def _save_folder(folder: Path, page: str, diagnosis: Diagnosis) -> str:
    old = folder / "report.html"
    try:
        if old.exists() and MARK not in old.read_text("utf-8", "replace")[:4096]:
            return f"{old}: found a report of another tool; expected one of ours or none; choose another folder with -o"
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _cannot(folder, error)
    return _save(old, page) or _save(folder / "diagnosis.json", diagnosis.to_json() + "\n")


def _save(path: Path, text: str) -> str:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return _cannot(path, error)
    return ""


def _cannot(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written ({error.strerror}); choose another place with -o"


def summary(diagnosis: Diagnosis, written: Written, *, to_stderr: bool, verbose: bool) -> None:
    """The one-screen verdict."""
    from rich.console import Console

    from diagnose.report import terminal

    terminal.render(diagnosis, Console(stderr=to_stderr, highlight=False), report=written.report, verbose=verbose)
