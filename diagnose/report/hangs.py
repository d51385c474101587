"""Who holds the job up, from flight recorder dumps: culprits, who only waits, where each rank stands, first errors.

Shown where dumps or a watchdog's message were read. A rank that waits is never called the cause.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Block, Grid, Name, Section, Text, columns, known
from diagnose.report._hang import RULE, call, did, group, headline, rank_names, size, timeouts
from diagnose.report._text import clean, name, rank_name
from diagnose.units import UNKNOWN

ORDER = 25
MOST_ROWS = 32
MOST_GROUPS = 3
_ERRORS = ("ERROR", "WARN")
_COLLECT = "give flight recorder dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1)"
_CAVEAT = (
    "Dumps say where ranks stood when they were written; one of a healthy job shows calls in flight, too. "
    "A rank that waits prints the time-out; look at the one it waits for."
)
Row = dict[str, Any]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where neither dumps nor time-outs were read."""
    rows, stood = _rows(tables, "hangs"), _rows(tables, "enqueued")
    gave_up = timeouts(tables)
    if not (rows or stood or gave_up):
        return None
    blocks: list[Block] = []
    if blamed := [row for row in rows if row["culprit"]]:
        blocks.append(_culprits(blamed))
    if others := [row for row in rows if not row["culprit"]]:
        blocks.append(_waiting(others))
    if concerned := list(dict.fromkeys(row["group"] for row in blamed or rows)):
        blocks += [b for b in (_standing(stood, rows, name_) for name_ in concerned[:MOST_GROUPS]) if b.rows]
    if gave_up:
        blocks.append(_timeouts(gave_up, tables))
    if errors := _errors(tables):
        blocks.append(_first_errors(errors, tables))
    blocks.append(Text(_CAVEAT, quiet=True))
    return Section("hangs", "Who holds the job up", blocks, _lead(diagnosis, stood, gave_up))


def _lead(diagnosis: Diagnosis, stood: list[Row], gave_up: list[Row]) -> str:
    if said := headline(diagnosis, next((f for f in diagnosis.findings if f.rule == RULE), None)):
        return f"{said}."
    if not stood:
        ranks = rank_names(row["rank"] for row in gave_up if row["rank"] is not None)
        return f"The watchdog of {ranks or 'some ranks'} gave up waiting; for whom is unknown: {_COLLECT}."
    ends = [(row["enqueued_seq"], row["completed_seq"]) for row in stood]
    if all(a is not None and a == b for a, b in ends):
        return "Every call that the dumps record had completed: they show no hang."
    return f"Calls were in flight, and the dumps do not tell whether a rank holds them up: {_COLLECT}."


def _culprits(blamed: list[Row]) -> Grid:
    heads = columns(
        "Rank", "What it did", ">Size", ">Its last call", ">Completed", ">Others reached", "Waiting for it",
        "First error",
    )  # fmt: skip
    rows = [
        [
            rank_name(row["rank"]),
            did(row),
            _or_unknown(size(row)),
            _number(row["enqueued_seq"]),
            _number(row["completed_seq"]),
            _number(row["peers_seq"]),
            name(rank_names(row["waiting_ranks"] or ()) or "nobody seen", 60),
            name(row["first_error"], 120),
        ]
        for row in blamed[:MOST_ROWS]
    ]
    more = f"{len(blamed) - MOST_ROWS:,} more rows." if len(blamed) > MOST_ROWS else ""
    return known(Grid("Who is to blame", heads, rows, more))


def _waiting(others: list[Row]) -> Grid:
    """Ranks alike in one row."""
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in others:
        key = (row["role"], row["group"], row["seq"], row["op"], row["enqueued_seq"], row["completed_seq"])
        alike.setdefault(key, []).append(row)
    heads = columns("Ranks", "In", ">Size", ">Last call", ">Completed")
    rows = [
        [
            name(rank_names(row["rank"] for row in own), 60),
            call(own[0]),
            _or_unknown(size(own[0])),
            _number(own[0]["enqueued_seq"]),
            _number(own[0]["completed_seq"]),
        ]
        for own in list(alike.values())[:MOST_ROWS]
    ]
    more = f"{len(alike) - MOST_ROWS:,} more rows." if len(alike) > MOST_ROWS else ""
    entered = all(row["role"] == "entered" for row in others)
    return known(Grid("Who had entered it" if entered else "Who only waits", heads, rows, more))


def _standing(stood: list[Row], rows: list[Row], concerned: str) -> Grid:
    """How far each rank of the group in question got, ranks alike together, those behind first."""
    described = next(row for row in rows if row["group"] == concerned)
    alike: dict[tuple[Any, ...], list[int]] = {}
    for row in stood:
        if row["group"] == concerned:
            alike.setdefault((row["enqueued_seq"], row["started_seq"], row["completed_seq"]), []).append(row["rank"])
    order = sorted(alike.items(), key=lambda item: tuple(-1 if v is None else v for v in item[0]))
    heads = columns("Ranks", ">Count", ">Last enqueued", ">Last started", ">Last completed")
    cells = [
        [name(rank_names(ranks), 60), f"{len(ranks):,}", *map(_number, places)] for places, ranks in order[:MOST_ROWS]
    ]
    more = "As the status in each dump says; calls of every kind count."
    if len(order) > MOST_ROWS:
        more += f" {len(order) - MOST_ROWS:,} more rows."
    title = f"How far the ranks of {group(described)} ({clean(concerned)}) got, the last first"
    return known(Grid(title, heads, cells, more))


def _timeouts(gave_up: list[Row], tables: dict[str, pa.Table]) -> Grid:
    rows = [[_rank(row["rank"]), name(row["detail"], 200), _place(row, tables)] for row in gave_up[:MOST_ROWS]]
    more = f"{len(gave_up) - MOST_ROWS:,} more messages." if len(gave_up) > MOST_ROWS else ""
    return Grid("Watchdogs that gave up waiting", columns("Rank", "What it says", "Where"), rows, more)


def _errors(tables: dict[str, pa.Table]) -> list[Row]:
    """The first error of each rank and file, time-outs apart, in order of lines; errors before warnings."""
    found = [
        row
        for row in _rows(tables, "log_events")
        if row["level"] in _ERRORS and not str(row["kind"]).startswith("watchdog")
    ]
    found += [
        {**row, "level": "ERROR", "detail": "out of memory", "host": None} for row in _rows(tables, "oom_messages")
    ]
    found.sort(key=lambda row: (row["level"] != "ERROR", row["file"] or 0, row["line"] or 0))
    first: dict[tuple[Any, ...], Row] = {}
    for row in found:
        first.setdefault((row["rank"], row["file"], row["host"]) if row["rank"] is not None else (row["file"],), row)
    return list(first.values())


def _first_errors(errors: list[Row], tables: dict[str, pa.Table]) -> Grid:
    rows = [
        [_rank(row["rank"]), clean(row["level"]).lower(), name(row["detail"], 200), _place(row, tables)]
        for row in errors[:MOST_ROWS]
    ]
    more = f"{len(errors) - MOST_ROWS:,} more ranks." if len(errors) > MOST_ROWS else ""
    return Grid("First error of each rank in the logs", columns("Rank", "Level", "What it says", "Where"), rows, more)


def _rows(tables: dict[str, pa.Table], table: str) -> list[Row]:
    found = tables.get(table)
    return found.to_pylist() if found is not None else []


def _place(row: Row, tables: dict[str, pa.Table]) -> Name:
    """`path, line 12`."""
    files = tables.get("files")
    paths = dict(zip(files["file"].to_pylist(), files["path"].to_pylist(), strict=True)) if files is not None else {}
    path = paths.get(row["file"])
    if path is None:
        return UNKNOWN_NAME
    return name(f"{path}, line {row['line']:,}" if row["line"] is not None else path, 60)


def _rank(rank: int | None) -> str | Name:
    return UNKNOWN_NAME if rank is None else rank_name(rank)


def _number(value: int | None) -> str | Name:
    return UNKNOWN_NAME if value is None else f"{value:,}"


def _or_unknown(text: str) -> str | Name:
    return UNKNOWN_NAME if text == UNKNOWN else text
