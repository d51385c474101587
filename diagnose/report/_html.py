"""One self-contained page: templates, style, script and plotly inlined; nothing is loaded from outside.

Safe by construction: jinja2 escapes every value, figures travel as JSON with `<`, `>`, `&` and line separators escaped,
and the content security policy lets only the scripts run whose hashes stand in it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import json
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from diagnose import assets, report
from diagnose.report._blocks import Figure, Section
from diagnose.report._memory_parts import MEMORY_PARTS
from diagnose.report._parts import PARTS_SHOWN

if TYPE_CHECKING:
    from diagnose.findings import Diagnosis

_NOT_SECTIONS = {"terminal"}
_UNIT = re.compile(r"(\d) ((?:ns|us|ms|s|min|h|%|GPUs?|[KMGT]iB|B|[kMGTP]?(?:B|FLOP)/s)(?![\w]))")


class Maker(NamedTuple):
    """A section module: where it stands on the page, and its function."""

    order: int
    name: str
    section: Callable[..., Section | None]


def makers() -> list[Maker]:
    """Every section of the page, in order."""
    found = []
    for module in pkgutil.iter_modules(report.__path__):
        if module.name.startswith("_") or module.name in _NOT_SECTIONS:
            continue
        loaded = importlib.import_module(f"diagnose.report.{module.name}")
        found.append(Maker(loaded.ORDER, module.name, loaded.section))
    return sorted(found)


def sections(diagnosis: Diagnosis) -> list[Section]:
    """What this diagnosis has to say, section by section."""
    made = (maker.section(diagnosis, diagnosis.tables) for maker in makers())
    return [s for s in made if s is not None]


def render(shown: list[Section], version: str) -> str:
    """The whole page as text."""
    figures = {}
    for part in shown:
        for i, block in enumerate(part.blocks):
            if isinstance(block, Figure):
                figures[f"{part.id}-{i}"] = block.spec
    folder = assets.folder("reports")
    scripts = (
        [_plotly(), (folder / "app.js").read_text("utf-8")] if figures else [(folder / "app.js").read_text("utf-8")]
    )
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_glue,
    )
    return environment.get_template("page.html").render(
        sections=shown,
        version=version,
        policy=_policy(scripts),
        style=(folder / "style.css").read_text("utf-8"),
        scripts=scripts,
        figures_json=embed(figures),
        parts={**MEMORY_PARTS, **PARTS_SHOWN},
    )


def _glue(value: Any) -> Any:
    """Keep a figure and its unit on one line."""
    return _UNIT.sub("\\1\u00a0\\2", value) if type(value) is str else value


def embed(value: Any) -> str:
    """JSON that may stand inside a script element whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _policy(scripts: list[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def _plotly() -> str:
    """plotly.min.js of the installed package, read as a file: importing plotly costs more than the page."""
    found = importlib.util.find_spec("plotly")
    assert found is not None and found.submodule_search_locations
    return (Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_text("utf-8")
