"""Renderings of a Diagnosis: one self-contained HTML page (`page`) and one terminal screen (`terminal.render`).

A section of the page is one module of this package with `ORDER` and `section(diagnosis, tables) -> Section | None`.
Nothing is judged here: what is not in the diagnosis or its tables is shown as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.findings import Diagnosis


def page(diagnosis: Diagnosis) -> str:
    """The report as one HTML document that loads nothing from outside; always encodable as UTF-8."""
    from diagnose.report import _html

    return _html.render(_html.sections(diagnosis), diagnosis.tool["version"])


def plan_page(plan: dict[str, Any]) -> str:
    """The plan of a job alone (`diagnose.planner.written.plan_dict`) as such a document."""
    from diagnose import __version__
    from diagnose.report import _html
    from diagnose.report.plan import of_plan

    return _html.render([of_plan(plan)], __version__)
