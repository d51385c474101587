"""The page as text: every section keeps its contract, hostile names stay text, unknown is never zero."""

from __future__ import annotations

import dataclasses
import html.parser
import importlib
import inspect
import json
import pkgutil
import re
from typing import Any

import pytest

from diagnose import findings, report
from diagnose.report import _blocks, _html
from diagnose.report._blocks import Figure, Grid, Section
from tests.report.example import example
from tests.report.example_run import HOSTILE


def _modules() -> list[str]:
    names = [m.name for m in pkgutil.iter_modules(report.__path__)]
    return [n for n in names if not n.startswith("_") and n != "terminal"]


def _section(name: str, diagnosis: findings.Diagnosis) -> Section | None:
    made: Section | None = importlib.import_module(f"diagnose.report.{name}").section(diagnosis, diagnosis.tables)
    return made


def _nothing() -> findings.Diagnosis:
    """What is left of a file that gave no device time, steps, rules or tables."""
    symptoms = [
        findings.Symptom(s, "unknown", None, None, None, "a profiler trace with CUDA activity settles it")
        for s in findings.SYMPTOMS
    ]
    return findings.Diagnosis(
        tool={"name": "diagnose", "version": "0.1.0"}, inputs=[], quality=[], questions=[], findings=[], outcomes=[],
        job={"world_size": None, "ranks_seen": [], "gpu": None, "layout": {}, "model": {}}, symptoms=symptoms,
        step_time={"steps_count": 0, "median_ns": None, "parts": [], "per_rank": [], "hidden_comm_ratio": None,
                   "comm_share_ratio": None},
        window={"dur_ns": None, "parts": [], "per_rank": []},
    )  # fmt: skip


@pytest.mark.parametrize("name", _modules())
def test_contract(name: str) -> None:
    """ORDER and section(diagnosis, tables); empty in, nothing false out."""
    module = importlib.import_module(f"diagnose.report.{name}")
    assert isinstance(module.ORDER, int)
    assert list(inspect.signature(module.section).parameters) == ["diagnosis", "tables"]
    for diagnosis in (
        _nothing(),
        dataclasses.replace(example(), tables={k: t.slice(0, 0) for k, t in example().tables.items()}),
    ):
        assert isinstance(_section(name, diagnosis), Section | None)


def test_orders_differ() -> None:
    orders = [m.order for m in _html.makers()]
    assert orders == sorted(set(orders))


def test_nothing_known_is_said_so() -> None:
    page = report.page(_nothing())

    assert "What was recorded cannot answer any of the five questions" in page
    assert not re.search(r"\b0(\.0+)? (ns|us|ms|s|%)", re.sub(r"(?s)<(style|script).*?</\1>", "", page))


class _Reader(html.parser.HTMLParser):
    """Elements and text of a page, as a browser would split them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_hostile_names_stay_text() -> None:
    page = report.page(example(hostile=True))
    reader = _Reader()
    reader.feed(page)

    assert not [t for t, _ in reader.tags if t in ("img", "link", "iframe", "object", "base")]
    assert [t for t, _ in reader.tags].count("script") == 3  # figures, plotly, ours
    assert not [a for _, attributes in reader.tags for a in attributes if a.startswith("on")]
    text = "".join(reader.text)
    assert HOSTILE[0] in text and HOSTILE[1] in text
    assert "{{7*7}}" in text and "\u202e" not in page and "\x1b" not in page and "\x00" not in page


def test_page_is_one_file_and_small() -> None:
    page = report.page(example())

    assert '<meta name="generator" content="diagnose' in page[:4096]
    body = page.replace(_html._plotly(), "")
    assert len(body.encode()) < 2_000_000
    assert not re.search(r"""(?:src|href)=["'](?!#)""", body)
    assert "http" not in body.lower().replace("http-equiv", "")


def test_policy_admits_only_our_scripts() -> None:
    page = report.page(example())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)

    assert policy is not None
    told = policy.group(1).replace("&#39;", "'")
    assert told.startswith("default-src 'none'; script-src 'sha256-")
    scripts = told.split(";")[1]
    assert "unsafe" not in scripts and scripts.count("sha256-") == 2


def test_embedded_json_survives_any_string() -> None:
    value = ["</script><!--", "\u2028\u2029", "<script>", "&lt;"]
    text = _html.embed(value)

    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


def test_lone_surrogates_can_be_written() -> None:
    diagnosis = example()
    broken = dataclasses.replace(diagnosis.findings[0], title="half \ud800 pair", evidence={"kernel": "\udfff"})

    report.page(dataclasses.replace(diagnosis, findings=[broken])).encode("utf-8")


def test_a_busy_page_stays_small() -> None:
    """Names of 5,000 characters on every kernel, and many findings: still bounded."""
    diagnosis = example(hostile=True)
    many = dataclasses.replace(diagnosis, findings=diagnosis.findings * 200, quality=diagnosis.quality * 500)

    assert len(report.page(many).replace(_html._plotly(), "").encode()) < 2_000_000


def test_every_block_has_a_template_of_its_name() -> None:
    kinds = {cls.block for cls in vars(_blocks).values() if inspect.isclass(cls) and hasattr(cls, "block")}
    used = {block.block for section in _html.sections(example()) for block in section.blocks}

    assert kinds - {"paste"} == used  # settings to paste come with a plan: tests/test_advice.py


def test_grids_are_rectangular_and_figures_say_what_they_show() -> None:
    for section in _html.sections(example()):
        for block in section.blocks:
            if isinstance(block, Grid):
                assert {len(row) for row in block.rows} == {len(block.columns)}
            if isinstance(block, Figure):
                assert len(block.alt) > 20


def test_figures_are_valid_plotly() -> None:
    import plotly.graph_objects as go

    specs = [b.spec for s in _html.sections(example(hostile=True)) for b in s.blocks if isinstance(b, Figure)]
    assert len(specs) == 8
    for spec in specs:
        go.Figure(spec)  # raises on any property that plotly does not know
        json.dumps(spec, allow_nan=False)
