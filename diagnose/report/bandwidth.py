"""Bus bandwidth against message size, transfer alone, beside what the links should give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Figure, Grid, Name, Section, columns, known
from diagnose.report._figures_ranks import against_size
from diagnose.report._text import clean, name
from diagnose.units import UNKNOWN, show

ORDER = 64
MOST_ROWS = 24


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no transfer was measured."""
    found = tables.get("link_expectations")
    rows = found.to_pylist() if found is not None else []
    if not rows:
        return None
    return Section("bandwidth", "Bandwidth between ranks", [_figure(rows), _grid(rows)], _lead(rows))


def _lead(rows: list[dict[str, Any]]) -> str:
    judged = [r for r in rows if r["of_expected_ratio"] is not None]
    if not judged:
        return "Transfer was measured; what these links should give is not known."
    worst = min(judged, key=lambda r: r["of_expected_ratio"])
    return (
        f"{clean(worst['op'])} of {show('size_bytes', worst['size_bytes'])} reaches"
        f" {show('_ratio', worst['of_expected_ratio'])} of the bandwidth its links should give,"
        f" the least of {len(judged):,} measured."
    )


def _figure(rows: list[dict[str, Any]]) -> Figure:
    measured = [
        (
            r["op"], r["size_bytes"], r["busbw_bytes_per_s"],
            f"{clean(r['op'])} of {show('size_bytes', r['size_bytes'])}, {r['ranks_count']} ranks: "
            f"{show('busbw_bytes_per_s', r['busbw_bytes_per_s'])} over {r['calls_count']:,} calls",
        )
        for r in rows
        if r["size_bytes"] > 0 and r["busbw_bytes_per_s"] > 0
    ]  # fmt: skip
    expected = [
        (r["op"], r["size_bytes"], r["expected_busbw_bytes_per_s"]) for r in rows if r["expected_busbw_bytes_per_s"]
    ]
    alt = f"Bus bandwidth of {len(measured)} operations and sizes, waiting left out."
    return Figure("Bandwidth against message size", against_size(measured, expected), 360, alt,
                  "Transfer after the last rank arrived; the median of the calls.")  # fmt: skip


def _grid(rows: list[dict[str, Any]]) -> Grid:
    heads = columns(
        "Operation", "Dim", "Group", ">Size", ">Ranks", "Link", ">Calls", ">Transfer", ">Bus bandwidth", ">Expected",
        ">Of expected",
    )  # fmt: skip
    ordered = sorted(rows, key=lambda r: -r["transfer_ns"] * r["calls_count"])
    cells = [
        [
            name(r["op"], 40),
            clean(r["dim"] or UNKNOWN),
            name(r["group"], 32),
            show("size_bytes", r["size_bytes"]),
            f"{r['ranks_count']:,}",
            name(r["link"]),
            f"{r['calls_count']:,}",
            show("_ns", r["transfer_ns"]),
            show("busbw_bytes_per_s", r["busbw_bytes_per_s"]),
            _or_unknown("busbw_bytes_per_s", r["expected_busbw_bytes_per_s"]),
            _or_unknown("_ratio", r["of_expected_ratio"]),
        ]
        for r in ordered[:MOST_ROWS]
    ]
    more = f"{len(rows) - MOST_ROWS:,} more rows." if len(rows) > MOST_ROWS else ""
    return known(Grid("Measured transfer, most time first", heads, cells, more))


def _or_unknown(unit: str, value: float | None) -> str | Name:
    return UNKNOWN_NAME if value is None else show(unit, value)
