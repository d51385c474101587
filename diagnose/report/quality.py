"""How far the inputs can be trusted: every file, every problem with its count and place, the profiler's own cost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import Block, Grid, Section, Tag, columns
from diagnose.report._text import clean, name, words
from diagnose.schema import PROBLEMS
from diagnose.units import UNKNOWN, show

ORDER = 110
MOST_ROWS = 100


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section:
    """Always there: no problem is an answer too."""
    counts: dict[str, int] = {}
    for item in diagnosis.inputs:
        counts[item["status"]] = counts.get(item["status"], 0) + 1
    files = f"{len(diagnosis.inputs):,} input{'s' * (len(diagnosis.inputs) != 1)}: " + ", ".join(
        f"{n} {s}" for s, n in counts.items()
    )
    problems = diagnosis.quality
    lead = f"{files}. " + (
        f"{len(problems):,} kinds of problem were met." if problems else "Nothing was repaired, dropped or doubtful."
    )
    blocks: list[Block] = [_inputs(diagnosis.inputs)] if diagnosis.inputs else []
    if problems:
        blocks.append(_problems(problems))
    cost = tables.get("profiler_cost")
    if cost is not None and cost.num_rows:
        blocks.append(_cost(cost.to_pylist()))
    return Section("quality", "Trace quality", blocks, lead)


def _inputs(inputs: list[dict[str, Any]]) -> Grid:
    rows = [
        [
            name(i["path"], 72),
            Tag(i["status"], i["status"]),
            clean(i.get("kind") or UNKNOWN),
            _rank(i.get("rank")),
            show("events_count", i.get("events_count")),
            clean(i.get("detail") or ""),
        ]
        for i in sorted(inputs, key=lambda i: i["status"] == "ok")[:MOST_ROWS]
    ]
    heads = columns("File", "Status", "Kind", ">Rank", ">Events", "Detail")
    return Grid("Inputs", heads, rows, f"{len(inputs) - MOST_ROWS:,} more inputs." if len(inputs) > MOST_ROWS else "")


def _problems(problems: list[dict[str, Any]]) -> Grid:
    rows = [
        [
            words(clean(p["problem"])),
            name(p.get("path"), 48),
            _rank(p.get("rank")),
            show("_count", p.get("count")),
            show("offset", p["byte_offset"]) if p.get("byte_offset") is not None else "",
            clean(p.get("detail") or PROBLEMS.get(p["problem"], "")),
        ]
        for p in problems[:MOST_ROWS]
    ]
    heads = columns("Problem", "File", ">Rank", ">Times", ">First at byte", "What it means")
    return Grid("Problems", heads, rows, f"{len(problems) - MOST_ROWS:,} more." if len(problems) > MOST_ROWS else "")


def _cost(rows: list[dict[str, Any]]) -> Grid:
    cells = [
        [
            words(clean(r["kind"])),
            _rank(r["rank"]),
            show("_count", r["count"]),
            show("dur_ns", r["dur_ns"]),
            show("share_ratio", r["share_ratio"]),
        ]
        for r in sorted(rows, key=lambda r: -(r["dur_ns"] or 0))[:MOST_ROWS]
    ]
    heads = columns("Kind", ">Rank", ">Events", ">Time", ">Of the recording")
    return Grid("What the profiler itself cost", heads, cells)


def _rank(rank: int | None) -> str:
    return UNKNOWN if rank is None or rank < 0 else str(rank)
