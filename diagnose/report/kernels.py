"""Device work by name and by category. Shares are of all device work, which runs at once on several streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report import _figures
from diagnose.report._blocks import Block, Figure, Grid, Section, Share, Swatch, columns, known
from diagnose.report._parts import part
from diagnose.report._text import clean, name, words
from diagnose.report._totals import totals
from diagnose.report._verdict import share
from diagnose.units import UNKNOWN, show

ORDER = 70
MOST_ROWS = 25
MOST_BARS = 12
CLASS_PART = {"compute": "compute", "comm": "comm", "copy": "copy", "unclassified": "unclassified"}


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no device work was recorded."""
    found = tables.get("kernel_totals")
    if found is None or not found.num_rows:
        return None
    by_name = totals(found, ["name", "class", "category"], ["calls_count", "dur_ns"], order="dur_ns")
    whole = sum(r["dur_ns"] for r in by_name)
    if not whole:
        return None
    blocks: list[Block] = [_categories(found), _grid(found, by_name, whole)]
    unclassified = sum(r["dur_ns"] for r in by_name if r["class"] == "unclassified")
    most = share(sum(r["dur_ns"] for r in by_name[:10]), whole)
    lead = f"{len(by_name):,} kernel names; the top {min(10, len(by_name))} take {most} of the device work."
    if unclassified:
        lead += f" {share(unclassified, whole)} is unclassified: neither known compute nor known communication."
    return Section("kernels", "Kernels", blocks, lead)


def _categories(found: pa.Table) -> Figure:
    rows = totals(found, ["category", "class"], ["dur_ns"], order="dur_ns")
    top = rows[:MOST_BARS]
    labels = [words(clean(r["category"] or UNKNOWN)) for r in top]
    series = []
    for label, key in CLASS_PART.items():
        values = [r["dur_ns"] if r["class"] == label else 0 for r in top]
        if sum(values):
            series.append((label, part(key).colour, 1.0, values))
    note = "Over the recording, all ranks read." + (
        f" The {MOST_BARS} largest of {len(rows)} categories." if len(rows) > MOST_BARS else ""
    )
    alt = (
        "Largest: "
        + ", ".join(f"{label} {show('_ns', r['dur_ns'])}" for label, r in zip(labels[:4], top, strict=False))
        + "."
    )
    return Figure(
        "Time by category",
        _figures.ranking(labels, series),
        _figures.height(len(top), legend=len(series) > 1),
        alt,
        note,
    )


def _grid(found: pa.Table, rows: list[dict[str, Any]], whole_ns: int) -> Grid:
    places: dict[Any, dict[str, Any]] = {}
    for row in totals(found, ["name", "module", "source"], ["dur_ns"], order="dur_ns"):
        places.setdefault(row["name"], row)
    heads = columns("Kernel", "Class", "Category", ">Time", ">Share", ">Calls", ">Mean", "Module", "Source")
    cells = [
        [
            name(r["name"], 84),
            Swatch(clean(r["class"] or UNKNOWN), CLASS_PART.get(r["class"], "idle")),
            words(clean(r["category"] or UNKNOWN)),
            show("_ns", r["dur_ns"]),
            Share(share(r["dur_ns"], whole_ns), r["dur_ns"] / whole_ns, CLASS_PART.get(r["class"], "idle")),
            show("calls_count", r["calls_count"]),
            show("_ns", r["dur_ns"] / r["calls_count"] if r["calls_count"] else None),
            name(places[r["name"]]["module"], 48),
            name(places[r["name"]]["source"], 48),
        ]
        for r in rows[:MOST_ROWS]
    ]
    rest = rows[MOST_ROWS:]
    more = f"{len(rest):,} more names, {show('_ns', sum(r['dur_ns'] for r in rest))} in all." if rest else ""
    return known(Grid("Top kernels, over the recording, all ranks read", heads, cells, more))
