"""Generic tables of numbers per step (JSON lines, CSV, TSV) as `series`: one row per step and metric.

The step column is recognised by its name, a rank column too; every other column that holds numbers is a metric under
the name it has in the file (nested JSON keys are joined by dots). A recorded NaN stays NaN: a loss that became NaN is
a fact. A missing value gives no row. Text and list columns are left out and said, but a text that says out of memory
is a row of `oom_messages`. Units are not guessed.
Method: DuckDB over cells (line, name, text), block by block, so memory is bounded by the result.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.ingest._cells import (
    Block,
    csv_blocks,
    fields,
    first_lines,
    first_object,
    header_of,
    is_number,
    json_blocks,
)
from diagnose.schema import INGESTED, Tables

STEP_NAMES = (
    "step", "global_step", "iteration", "iter", "train_step", "training_step", "trainer_step", "train_iter", "step_num",
    "steps",
)  # fmt: skip
RANK_NAMES = ("rank", "global_rank")

_STEPS = """
WITH steps AS (
    SELECT line, max(TRY_CAST(TRY_CAST(text AS DOUBLE) AS BIGINT)) AS step FROM cells
    WHERE name = $step AND TRY_CAST(text AS DOUBLE) = floor(TRY_CAST(text AS DOUBLE)) GROUP BY line
)"""
_ROWS = f"""{_STEPS}, ranks AS (
    SELECT line, max(TRY_CAST(text AS INTEGER)) AS rank FROM cells WHERE name = $rank GROUP BY line
)
SELECT rank, step, name AS metric, TRY_CAST(text AS DOUBLE) AS value
FROM cells JOIN steps USING (line) LEFT JOIN ranks USING (line)
WHERE name NOT IN ($step, $rank) AND step IS NOT NULL AND TRY_CAST(text AS DOUBLE) IS NOT NULL
ORDER BY rowid_"""
_NOT_NUMBERS = """
SELECT name, count(*) FROM cells
WHERE name NOT IN ($step, $rank) AND text <> '' AND TRY_CAST(text AS DOUBLE) IS NULL
GROUP BY name ORDER BY min(rowid_)"""
_FAILURES = f"""{_STEPS}, ranks AS (
    SELECT line, max(TRY_CAST(text AS INTEGER)) AS rank FROM cells WHERE name = $rank GROUP BY line
)
SELECT rank, line + 1 AS line, count(*) AS count FROM cells JOIN steps USING (line) LEFT JOIN ranks USING (line)
WHERE regexp_matches(text, '(^|[^A-Za-z])OOM([^A-Za-z]|$)|[Oo]ut of memory|OutOfMemory') AND name <> $step
GROUP BY rank, line ORDER BY line"""
_WITH_STEP = f"{_STEPS} SELECT count(step) FROM steps"


def sniff(head: bytes, name: str) -> bool:
    """Whether the text is JSON lines with a step, or a table whose second line is mostly numbers."""
    lines = first_lines(head)
    if b"\0" in head or not lines:
        return False
    first = first_object(lines)
    if first is not None:
        second = first_object(lines[1:])
        flat = all(not isinstance(value, (dict, list)) for value in first.values())
        alike = bool(first) and flat and second is not None and first.keys() == second.keys()
        return alike or _column(list(first), STEP_NAMES) is not None
    return _is_table(lines)


def read(source: Source, options: Options) -> Tables:
    """`series` of the table. InputError where there is no step column, or no number."""
    lines = first_lines(source.head())
    blocks = json_blocks(source) if first_object(lines) is not None else csv_blocks(source, header_of(lines))
    found = _Series()
    for block in blocks:
        found.add(block)
    return found.tables(source.label)


class _Series:
    """Collects the rows of all blocks, and counts what gave none."""

    def __init__(self) -> None:
        import duckdb

        self.database = duckdb.connect()
        self.parts: list[pa.Table] = []
        self.unreadable_count, self.stepless_count = 0, 0
        self.not_numbers: dict[str, int] = {}
        self.failures: list[dict[str, Any]] = []
        self.names: dict[str, None] = {}

    def add(self, block: Block) -> None:
        """Rows of one block."""
        self.unreadable_count += block.unreadable_count
        self.database.register("cells", block.cells)
        names = self.database.execute("SELECT name FROM cells GROUP BY name ORDER BY min(rowid_)").fetchall()
        self.names |= {name: None for (name,) in names}
        step, rank = _column(list(self.names), STEP_NAMES), _column(list(self.names), RANK_NAMES)
        if step is None:
            self.stepless_count += block.lines_count
            return
        columns = {"step": step, "rank": rank or ""}
        self.parts.append(self.database.sql(_ROWS, params=columns).to_arrow_table())
        ((with_step,),) = self.database.execute(_WITH_STEP, {"step": step}).fetchall()
        self.stepless_count += block.lines_count - with_step
        for who, line, count in self.database.execute(_FAILURES, columns).fetchall():
            said = {"wording": "bare", "allocator": "pytorch", "rank": who, "line": line, "count": count}
            self.failures.append(said)
        for name, count in self.database.execute(_NOT_NUMBERS, columns).fetchall():
            self.not_numbers[name] = self.not_numbers.get(name, 0) + count

    def tables(self, label: str) -> Tables:
        """files, series, quality. InputError where no row came of it."""
        rows = pa.concat_tables(self.parts) if self.parts else pa.table({"step": []})
        if not rows.num_rows:
            columns = ", ".join(list(self.names)[:8]) or "none"
            raise InputError(
                label, f"a table without whole step numbers, or without other numbers (columns: {columns})",
                "a column called step, iteration, iter or global_step beside columns of numbers", "rename the column",
            )  # fmt: skip
        lost = self.unreadable_count + self.stepless_count
        files = {
            "file": [0], "path": [label], "kind": ["series"], "events_count": [rows.num_rows],
            "status": ["partial" if lost else "ok"], "detail": [f"{lost:,} lines left out" if lost else ""],
        }  # fmt: skip
        messages = INGESTED["oom_messages"]
        more = {"oom_messages": messages.build({n: [f.get(n) for f in self.failures] for n in messages.arrow.names})}
        return (more if self.failures else {}) | {
            "files": INGESTED["files"].build(files),
            "series": INGESTED["series"].build({name: rows[name] for name in ("rank", "step", "metric", "value")}),
            "quality": quality([{**note, "path": label} for note in self._notes(rows)]),
        }

    def _notes(self, rows: pa.Table) -> list[dict[str, Any]]:
        metrics = set(rows["metric"].unique().to_pylist())
        holes = {name: count for name, count in self.not_numbers.items() if name in metrics}
        text = [name for name in self.not_numbers if name not in metrics]
        notes = (
            ("unreadable_line", self.unreadable_count, "lines that do not parse; left out"),
            ("unreadable_line", self.stepless_count, "lines without a whole step number; left out"),
            ("unparsed_value", sum(holes.values()), f"values that are no numbers, in {', '.join(holes)}; left out"),
            ("unparsed_value", len(text), f"columns of text or lists, left out: {', '.join(text)}"),
        )
        return [{"problem": problem, "count": count, "detail": detail} for problem, count, detail in notes if count]


def _is_table(lines: list[str]) -> bool:
    header = header_of(lines)
    if len(lines) < header.skipped_count + 2 or len(header.names) < 2:
        return False
    if any(is_number(name) or len(name) > 80 for name in header.names):
        return False
    first = fields(lines[header.skipped_count + 1], header.delimiter)
    numbers = sum(map(is_number, first))
    has_step = _column(header.names, STEP_NAMES) is not None
    return len(first) == len(header.names) and numbers >= (1 if has_step else len(first) / 2)


def _column(names: list[str], wanted: tuple[str, ...]) -> str | None:
    """The first of `wanted` among the names, whatever its case and separators."""
    plain = {re.sub(r"[\s-]+", "_", name.strip().lower()): name for name in reversed(names)}
    return next((plain[name] for name in wanted if name in plain), None)
