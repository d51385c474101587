"""Generic tables of numbers per step (JSON lines, CSV, TSV) as `series`: one row per step and metric.

The step column is recognised by its name, a rank column too; every other column that holds numbers is a metric under
the name it has in the file (nested JSON keys are joined by dots). A column of wall-clock times becomes `step_ends`, and
time since the first of them, which stands for the step time where nothing better is logged. Weights & Biases' own
columns are known: `_step` counts its log calls and is the step only where no training step is logged beside it.
A recorded NaN stays NaN: a loss that became NaN is a fact. A missing value gives no row. Text and list columns are left
out and said, but a text that says out of memory is a row of `oom_messages`. Units are not guessed.
Method: whole columns, block by block, so memory is bounded by the result.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    numbers,
)
from diagnose.ingest._moments import epochs, moments
from diagnose.schema import INGESTED, Tables

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
STEP_NAMES = (
    "step", "global_step", "iteration", "iter", "train_step", "training_step", "trainer_step", "train_iter", "step_num",
    "steps", "trainer_global_step", "train_global_step", "_step",
)  # fmt: skip
TIME_NAMES = (
    "_timestamp",
    "timestamp",
    "wall_time",
    "walltime",
    "end_wall_ns",
    "ts_ns",
    "datetime",
    "time",
    "ts",
    "date",
)
RANK_NAMES = ("rank", "global_rank")

_FAILURE = r"(?:^|[^A-Za-z])OOM(?:[^A-Za-z]|$)|[Oo]ut of memory|OutOfMemory"


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


class _Part(NamedTuple):
    """Values of one metric in one block."""

    metric: str
    rank: pa.Array
    step: pa.Array
    value: pa.Array


class _Series:
    """Collects the values of all blocks, and counts what gave none."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.unreadable_count, self.stepless_count = 0, 0
        self.not_numbers: dict[str, int] = {}
        self.failures: list[dict[str, Any]] = []
        self.names: dict[str, None] = {}
        self.ends: list[pa.Table] = []
        self.first_ns: int | None = None

    def add(self, block: Block) -> None:
        """Values of one block."""
        self.unreadable_count += block.unreadable_count
        block = block._replace(columns=_of_one_run(block.columns))
        self.names |= dict.fromkeys(block.columns)
        step_name, rank_name = _column(list(self.names), STEP_NAMES), _column(list(self.names), RANK_NAMES)
        step, stepped = _whole(block.columns.get(step_name or ""), len(block.line))
        self.stepless_count += block.lines_count - int(stepped.sum())
        if step_name is None:
            return
        rank, ranked = _whole(block.columns.get(rank_name or ""), len(block.line))
        ranks, steps = pa.array(rank.astype(np.int32), mask=~ranked), pa.array(step)
        clock = self._clock(block, ranks, steps, stepped)
        for name, column in block.columns.items():
            if name in (step_name, rank_name, clock, "_step"):
                continue
            value, there, words = numbers(column)
            if words.any():
                self.not_numbers[name] = self.not_numbers.get(name, 0) + int(words.sum())
                self._failures(block.line[words & stepped], column.filter(pa.array(words & stepped)), ranks, block)
            there &= stepped
            metric, value = ("elapsed_time_ns", value * 1e9) if name == "_runtime" else (name, value)
            if there.all():
                self.parts.append(_Part(metric, ranks, steps, pa.array(value)))
            elif there.any():
                kept = pa.array(there)
                self.parts.append(_Part(metric, ranks.filter(kept), steps.filter(kept), pa.array(value[there])))

    def _clock(self, block: Block, ranks: pa.Array, steps: pa.Array, stepped: Flags) -> str | None:
        """Name of the column of wall-clock times, whose rows become `step_ends`; None where there is none."""
        name = _column(list(block.columns), TIME_NAMES)
        if name is None:
            return None
        value, there, _ = numbers(block.columns[name])
        when = epochs(np.where(there, value, np.nan)) if there.any() else moments(block.columns[name])
        if when is None or not (kept := when.known & stepped).any():
            return None
        mask = pa.array(kept)
        ends = {
            "rank": ranks.filter(mask),
            "step": steps.filter(mask),
            "ts_ns": when.ts_ns[kept],
            "zoned": when.zoned[kept],
        }
        self.ends.append(INGESTED["step_ends"].build(ends))
        if "_runtime" not in self.names:
            first = self.first_ns = int(when.ts_ns[kept][0]) if self.first_ns is None else self.first_ns
            elapsed = pa.array((when.ts_ns[kept] - first).astype(np.float64))
            self.parts.append(_Part("elapsed_time_ns", ends["rank"], ends["step"], elapsed))
        return name

    def _failures(self, line: Ints, text: pa.Array, ranks: pa.Array, block: Block) -> None:
        """Text that says out of memory, once a line."""
        said = np.unique(line[np.asarray(pc.match_substring_regex(text, _FAILURE))])
        for number in said.tolist():
            rank = ranks[int(np.searchsorted(block.line, number))].as_py()
            row = {"wording": "bare", "allocator": "pytorch", "rank": rank, "line": number + 1, "count": 1}
            self.failures.append(row)

    def _rows(self) -> pa.Table:
        """All values; each column keeps one chunk a block and metric, and blocks share steps and ranks."""
        schema = INGESTED["series"]
        names = list(dict.fromkeys(part.metric for part in self.parts))
        number, labels = {name: at for at, name in enumerate(names)}, pa.array(names, pa.string())
        given = {"rank": [p.rank for p in self.parts], "step": [p.step for p in self.parts]}
        given["value"] = [p.value for p in self.parts]
        given["metric"] = [
            pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(number[p.metric], pa.int32()), len(p.step)), labels)
            for p in self.parts
        ]
        chunked = {name: pa.chunked_array(chunks, schema.arrow.field(name).type) for name, chunks in given.items()}
        return schema.build(chunked)

    def tables(self, label: str) -> Tables:
        """files, series, quality. InputError where no row came of it."""
        rows = self._rows()
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
        more = {"oom_messages": messages.of_rows(self.failures)}
        more = (more if self.failures else {}) | ({"step_ends": pa.concat_tables(self.ends)} if self.ends else {})
        return more | {
            "files": INGESTED["files"].build(files),
            "series": rows,
            "quality": quality([{**note, "path": label} for note in self._notes()]),
        }

    def _notes(self) -> list[dict[str, Any]]:
        metrics = {part.metric for part in self.parts}
        holes = {name: count for name, count in self.not_numbers.items() if name in metrics}
        text = [name for name in self.not_numbers if name not in metrics]
        notes = (
            ("unreadable_line", self.unreadable_count, "lines that do not parse; left out"),
            ("unreadable_line", self.stepless_count, "lines without a whole step number; left out"),
            ("unparsed_value", sum(holes.values()), f"values that are no numbers, in {', '.join(holes)}; left out"),
            ("unparsed_value", len(text), f"columns of text or lists, left out: {', '.join(text)}"),
        )
        return [{"problem": problem, "count": count, "detail": detail} for problem, count, detail in notes if count]


def _of_one_run(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Columns of a chart that Weights & Biases exported: `run - metric`, with its least and most beside it.

    Bounds go, and so does the run's name where there is only one; charts of several runs keep theirs.
    """
    charted = {name: column for name, column in columns.items() if f"{name}__MIN" in columns}
    runs = {name.split(" - ", 1)[0] for name in charted if " - " in name}
    if len(runs) != 1:
        return columns
    bounds = {f"{name}{end}" for name in charted for end in ("__MIN", "__MAX")}
    return {
        name.split(" - ", 1)[1] if name in charted and " - " in name else name: column
        for name, column in columns.items()
        if name not in bounds
    }


def _whole(column: pa.Array | None, count: int) -> tuple[Ints, Flags]:
    """Whole numbers of a column, and where it has one."""
    if column is None:
        return np.zeros(count, np.int64), np.zeros(count, bool)
    value, there, _ = numbers(column)
    there = there & (value == np.floor(value)) & (np.abs(value) < 2.0**53)
    return np.where(there, value, 0).astype(np.int64), there


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
    plain = {re.sub(r"[\s/-]+", "_", name.strip().lower()): name for name in reversed(names)}
    return next((plain[name] for name in wanted if name in plain), None)
