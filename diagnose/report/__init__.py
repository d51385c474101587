"""Renderings of a Diagnosis: one self-contained HTML page (`page`) and one terminal screen (`terminal.render`).

A section of the page is one module of this package with `ORDER` and `section(diagnosis, tables) -> Section | None`.
Nothing is judged here: what is not in the diagnosis or its tables is shown as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.findings import Diagnosis


def page(diagnosis: Diagnosis) -> str:
    """The report as one HTML document that loads nothing from outside; always encodable as UTF-8."""
    from diagnose.report import _html

    return _html.render(diagnosis)
