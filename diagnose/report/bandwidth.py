"""Bus bandwidth against message size, transfer alone, beside what the links should give; groups and their nodes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Block, Figure, Grid, Name, Section, columns, known
from diagnose.report._figures_ranks import against_size
from diagnose.report._text import clean, name
from diagnose.units import UNKNOWN, ranges, show

ORDER = 64
MOST_ROWS = 24


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no transfer was measured and no group is known."""
    found = tables.get("link_expectations")
    rows = found.to_pylist() if found is not None else []
    groups = [g for g in tables["groups"].to_pylist() if g["size"] != 1] if "groups" in tables else []
    blocks: list[Block] = []
    if rows:
        blocks += [_figure(rows), _grid(rows)]
    if groups:
        blocks.append(_groups(groups))
    if not blocks:
        return None
    return Section("links", "Links and groups", blocks, _lead(rows))


def _lead(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "Bandwidth needs calls matched across ranks; none were."
    judged = [r for r in rows if r["of_expected_ratio"] is not None]
    if not judged:
        return "Transfer was measured; what these links should give is not known."
    worst = min(judged, key=lambda r: r["of_expected_ratio"])
    return (
        f"{clean(worst['op'])} of {show('size_bytes', worst['size_bytes'])} reaches"
        f" {show('_ratio', worst['of_expected_ratio'])} of the bandwidth its links should give, the least of {len(judged):,} measured."
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


def _groups(groups: list[dict[str, Any]]) -> Grid:
    """Groups of one kind, size and span in one row."""
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for g in groups:
        key = (g["dim"], g["dim_source"], g["description"], g["size"], g["node_count"], g["fewest_node_count"])
        kinds.setdefault(key, []).append(g)
    heads = columns("Dim", "Known from", "Description", ">Groups", ">Ranks", ">Nodes", ">Nodes needed", "First group")
    cells = [
        [
            clean(key[0]),
            clean(key[1]),
            name(key[2], 40),
            f"{len(own):,}",
            UNKNOWN if key[3] is None else f"{key[3]:,}",
            name(key[4]),
            name(key[5]),
            name(ranges(own[0]["ranks"]) if own[0]["ranks"] else None, 40),
        ]
        for key, own in sorted(kinds.items(), key=lambda item: tuple(str(v) for v in item[0]))
    ]
    more = f"{len(cells) - MOST_ROWS:,} more kinds." if len(cells) > MOST_ROWS else ""
    return known(Grid("Process groups and the nodes they span", heads, cells[:MOST_ROWS], more))
