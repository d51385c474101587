"""Why the device waited: idle time by cause, the host calls that blocked, the copies in the way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report import _figures
from diagnose.report._blocks import Block, Figure, Grid, Section, Share, Swatch, columns, known
from diagnose.report._parts import part
from diagnose.report._text import clean, name
from diagnose.report._totals import Scale, inside, scale, totals
from diagnose.report._verdict import share
from diagnose.units import UNKNOWN, show

ORDER = 80
MOST_ROWS = 12
DIRECTIONS = {
    "h2d": "host to device",
    "d2h": "device to host",
    "d2d": "on the device",
    "p2p": "between devices",
    "memset": "memory set",
}


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where neither idle time, nor blocking calls, nor copies could have been recorded."""
    by = scale(tables)
    blocks: list[Block] = []
    lead = ""
    idle = tables.get("idle")
    if idle is not None:
        causes = totals(inside(idle, by), ["cause"], ["dur_ns"], order="dur_ns")
        whole = sum(r["dur_ns"] for r in causes)
        lead = f"The device was idle for {show('_ns', whole / by.divisor)} {by.words}."
        if whole:
            blocks += [_figure(causes, by, lead), _gaps(inside(idle, by), whole, by)]
    for found, grid in ((tables.get("syncs"), _syncs), (tables.get("copies"), _copies)):
        if found is not None and found.num_rows and (block := grid(inside(found, by), by)).rows:
            blocks.append(block)
    return Section("idle", "Idle and host", blocks, lead) if idle is not None or blocks else None


def _figure(causes: list[dict[str, Any]], by: Scale, alt: str) -> Figure:
    shown = [(part(r["cause"]), int(r["dur_ns"] / by.divisor)) for r in causes]
    labels = [s.label for s, _ in shown]
    series = [
        (s.label, s.colour, 1.0, [v if i == j else 0 for j in range(len(shown))]) for i, (s, v) in enumerate(shown)
    ]
    spec = _figures.ranking(labels, series)
    spec["layout"]["showlegend"] = False  # the axis already names every bar
    return Figure("Idle by cause", spec, _figures.height(len(shown)), alt, f"Time {by.words}.")


def _gaps(idle: pa.Table, whole_ns: int, by: Scale) -> Grid:
    rows = totals(idle, ["cause", "host", "before", "module", "source"], ["dur_ns"], order="dur_ns")
    heads = columns("Cause", "Host was in", "Gap ended by", "Module", "Source", ">Gaps", ">Idle")
    cells = [
        [
            Swatch(part(r["cause"]).label, r["cause"]),
            name(r["host"], 48),
            name(r["before"], 48),
            name(r["module"], 40),
            name(r["source"], 40),
            _calls(r["calls"] / by.divisor),
            Share(
                f"{show('_ns', r['dur_ns'] / by.divisor)} · {share(r['dur_ns'], whole_ns)}",
                r["dur_ns"] / whole_ns,
                r["cause"],
            ),
        ]
        for r in rows[:MOST_ROWS]
    ]
    return known(Grid(f"Largest causes, {by.words}", heads, cells, _more(rows, "dur_ns", by)))


def _syncs(found: pa.Table, by: Scale) -> Grid:
    rows = totals(found, ["name", "op", "module", "source"], ["dur_ns", "idle_ns"], order="idle_ns")
    heads = columns("Blocking call", "Operator", "Module", "Source", ">Calls", ">Host blocked", ">Idle caused")
    cells = [
        [
            name(r["name"], 40),
            name(r["op"], 40),
            name(r["module"], 40),
            name(r["source"], 40),
            _calls(r["calls"] / by.divisor),
            _per(r["dur_ns"], by),
            _per(r["idle_ns"], by),
        ]
        for r in rows[:MOST_ROWS]
    ]
    return known(Grid(f"Host calls that waited for the device, {by.words}", heads, cells, _more(rows, "idle_ns", by)))


def _copies(found: pa.Table, by: Scale) -> Grid:
    rows = totals(
        found,
        ["direction", "pageable", "module", "source"],
        ["size_bytes", "dur_ns", "exposed_ns", "host_blocked_ns"],
        order="dur_ns",
    )
    heads = columns(
        "Copy", "Host memory", "Module", "Source", ">Copies", ">Bytes", ">Time", ">Exposed", ">Host blocked"
    )
    cells = [
        [
            DIRECTIONS.get(r["direction"], clean(r["direction"] or UNKNOWN)),
            {True: "pageable", False: "pinned", None: UNKNOWN}[r["pageable"]]
            if r["direction"] in ("h2d", "d2h", None)
            else "",
            name(r["module"], 40),
            name(r["source"], 40),
            _calls(r["calls"] / by.divisor),
            show("size_bytes", None if r["size_bytes"] is None else r["size_bytes"] / by.divisor),
            _per(r["dur_ns"], by),
            _per(r["exposed_ns"], by),
            _per(r["host_blocked_ns"], by),
        ]
        for r in rows[:MOST_ROWS]
    ]
    return known(Grid(f"Copies, {by.words}", heads, cells, _more(rows, "dur_ns", by)))


def _per(value_ns: int | None, by: Scale) -> str:
    return show("_ns", None if value_ns is None else value_ns / by.divisor)


def _more(rows: list[dict[str, Any]], column: str, by: Scale) -> str:
    rest = rows[MOST_ROWS:]
    left = sum(r[column] or 0 for r in rest)
    return f"{len(rest):,} more rows, {show('_ns', left / by.divisor)} in all." if rest else ""


def _calls(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"
