"""Every analysis, table, column and module keeps the design's contract; a new file is held to it by being there."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pyarrow as pa
import pytest

from diagnose import pipeline, schema
from diagnose.schema import INGESTED, TableSchema

ROOT = Path(__file__).resolve().parents[1]
ANALYSES = pipeline.discover()
MODULES = sorted((ROOT / "diagnose").rglob("*.py"))
TABLES: dict[str, TableSchema] = {**INGESTED, **{a.name: a.schema for a in ANALYSES.values()}}
MOST_FILE_LINES, MOST_FUNCTION_LINES = 320, 60
CATCH_ALL = {"diagnose/live/_boundary.py", "diagnose/live/boot/diagnose_boot.py"}
"""Where the training script must never see an error of ours."""
VAGUE_NAMES = {"utils", "common", "helpers", "base", "misc"}


@pytest.mark.parametrize("name", ANALYSES)
def test_analysis_reads_tables_by_their_names(name: str) -> None:
    analysis = ANALYSES[name]
    wanted = {*analysis.needs, *analysis.optional}

    assert wanted <= set(TABLES), f"{name} asks for tables that nothing writes"
    assert name not in wanted, "an analysis never outputs a table that it reads"
    assert name not in INGESTED, "ingested and derived tables have different names"


@pytest.mark.parametrize("name", ANALYSES)
def test_analysis_of_empty_tables_is_an_empty_table(name: str) -> None:
    analysis = ANALYSES[name]
    empty = {need: TABLES[need].empty() for need in analysis.needs}

    result = analysis.function(**empty)

    schema.check(name, result, analysis.schema)
    assert result.num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_documented_and_carry_a_known_unit(name: str) -> None:
    for column in TABLES[name].columns:
        assert column.doc, f"{name}.{column.name} has no documentation"
        if column.name.endswith(("_ns", "_bytes", "_count")):
            assert column.type in (pa.int32(), pa.int64()), f"{name}.{column.name}: exact units are whole numbers"
        if column.name.endswith("_ratio"):
            assert column.type == pa.float64()


def test_every_order_of_tables_is_derivable() -> None:
    tables = {name: table.empty() for name, table in INGESTED.items()}

    derived = pipeline.derive(tables)

    assert set(ANALYSES) <= set(derived)


def test_analyses_side_by_side_find_what_they_find_in_turn() -> None:
    read = pipeline.read([str(ROOT / "fixtures" / "gloo_slow_rank" / "ddp_slow")])

    alone, together = pipeline.derive(read, workers=1), pipeline.derive(read, workers=4)

    assert list(alone) == list(together)
    assert all(alone[name].equals(together[name]) for name in alone)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small_and_documented(path: Path) -> None:
    text = path.read_text("utf-8")
    tree = ast.parse(text)

    assert path.stem.strip("_") not in VAGUE_NAMES
    assert text.count("\n") <= MOST_FILE_LINES
    assert not text.strip() or ast.get_docstring(tree), "a module says what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MOST_FUNCTION_LINES, f"{path.name}: {node.name} has {length} lines"
        if isinstance(node, ast.ExceptHandler):
            everything = isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            assert not everything or str(path.relative_to(ROOT)) in CATCH_ALL
            assert node.type is not None, "a bare except hides everything"


def test_the_page_about_tables_is_current() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "generate.py"))["page"]()

    assert (ROOT / "docs" / "tables.md").read_text("utf-8") == written, "run: python docs/generate.py"
