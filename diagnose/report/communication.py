"""Communication by operation, group and module: what was hidden, what the step had to wait for, and why.

Exposed time is what the step partition charges. Bus bandwidth is weighted by time; from one rank it is a lower bound,
since waiting for peers is inside the duration.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import Diagnosis
from diagnose.report import _figures
from diagnose.report._blocks import Block, Figure, Grid, Section, Share, Text, columns, known
from diagnose.report._parts import part
from diagnose.report._text import clean, name
from diagnose.report._totals import Scale, inside, scale, totals
from diagnose.report._verdict import share
from diagnose.units import UNKNOWN, show

ORDER = 60
MOST_ROWS = 24
MOST_BARS = 10
KEYS = ("op", "dim", "group", "module")
BLOCKED = {
    "same_stream": "on the compute stream",
    "stream_wait": "compute stream waits for it",
    "launched_late": "launched late",
    "no_compute_left": "no compute left to hide under",
    "unknown": "cause unknown",
}


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where collectives could not have been recorded."""
    found = tables.get("collectives")
    if found is None:
        return None
    by = scale(tables)
    found = _weighted(inside(found, by))
    if not found.num_rows:
        return Section(
            "communication", "Communication", [], f"No communication was recorded{' inside steps' * by.by_step}."
        )
    rows = totals(
        found,
        KEYS,
        ["dur_ns", "hidden_ns", "exposed_ns", "size_bytes", "bus_bytes", "bus_ns", "sized"],
        order="exposed_ns",
    )
    exposed, whole = (sum(r[c] or 0 for r in rows) for c in ("exposed_ns", "dur_ns"))
    lead = (
        f"{show('_ns', exposed / by.divisor)} exposed of {show('_ns', whole / by.divisor)} of communication, {by.words}"
        f" ({share(exposed, whole)})."
    )
    marks = set(found["bandwidth_bound"].to_pylist())
    blocks: list[Block] = [_figure(rows, by, lead), _grid(found, rows, by)]
    if "lower" in marks:
        blocks.append(Text("≥ marks a lower bound: on one rank, waiting for peers is inside the duration.", quiet=True))
    return Section("communication", "Communication", blocks, lead)


def _weighted(found: pa.Table) -> pa.Table:
    rate = found["busbw_bytes_per_s"]
    known = pc.is_valid(rate)
    seconds = pc.divide(pc.cast(found["dur_ns"], pa.float64()), 1e9)
    found = found.append_column("bus_bytes", pc.multiply(rate, seconds))
    found = found.append_column("bus_ns", pc.if_else(known, found["dur_ns"], None))
    return found.append_column("sized", pc.cast(pc.is_valid(found["size_bytes"]), pa.int64()))


def _label(row: dict[str, Any]) -> str:
    where = row["module"] or (f"group {row['group']}" if row["group"] else "")
    return clean(f"{row['op'] or UNKNOWN} {row['dim'] if row['dim'] and row['dim'] != 'other' else ''} {where or ''}")


def _figure(rows: list[dict[str, Any]], by: Scale, alt: str) -> Figure:
    top = rows[:MOST_BARS]
    exposed = [int((r["exposed_ns"] or 0) / by.divisor) for r in top]
    hidden = [int((r["hidden_ns"] or 0) / by.divisor) for r in top]
    overlaid = [
        max(0, int((r["dur_ns"] or 0) / by.divisor) - e - h) for r, e, h in zip(top, exposed, hidden, strict=True)
    ]
    series = [
        ("exposed", part("comm").colour, 1.0, exposed),
        ("hidden under compute", part("compute").colour, 0.55, hidden),
        ("under other communication", part("idle").colour, 0.55, overlaid),
    ]
    whole = sum(r["dur_ns"] or 0 for r in top) / by.divisor
    shown = [s for s in series if sum(s[3]) > whole / 1000]  # rounding leaves a few ns
    spec = _figures.ranking([_label(r) for r in top], shown)
    note = f"The {MOST_BARS} with most exposed time, {by.words}." if len(rows) > MOST_BARS else f"Time {by.words}."
    return Figure("Hidden and exposed", spec, _figures.height(len(top), legend=True), alt, note)


def _grid(found: pa.Table, rows: list[dict[str, Any]], by: Scale) -> Grid:
    reasons = _reasons(found)
    bounds = {
        tuple(r[k] for k in KEYS): r["bandwidth_bound"]
        for r in totals(found, [*KEYS, "bandwidth_bound"], ["dur_ns"], order="dur_ns")
    }
    whole = sum(r["exposed_ns"] or 0 for r in rows)
    heads = columns(
        "Operation",
        "Dim",
        "Group",
        "Module",
        ">Calls",
        ">Total",
        ">Hidden",
        ">Exposed",
        ">Mean size",
        ">Bus bandwidth",
        "Not hidden because",
    )
    cells = [_cells(r, by, whole, reasons, bounds) for r in rows[:MOST_ROWS]]
    rest = rows[MOST_ROWS:]
    left = sum(r["exposed_ns"] or 0 for r in rest)
    more = f"{len(rest):,} more rows, {show('_ns', left / by.divisor)} exposed in all." if rest else ""
    return known(Grid(f"By operation, group and module, {by.words}", heads, cells, more))


def _cells(
    row: dict[str, Any],
    by: Scale,
    whole_ns: int,
    reasons: dict[tuple[Any, ...], str],
    bounds: dict[tuple[Any, ...], str],
) -> list[Any]:
    key = tuple(row[k] for k in KEYS)
    exposed = row["exposed_ns"]
    per = {c: None if row[c] is None else row[c] / by.divisor for c in ("dur_ns", "hidden_ns", "exposed_ns")}
    size = row["size_bytes"] / row["sized"] if row["size_bytes"] is not None and row["sized"] else None
    bus = row["bus_bytes"] / (row["bus_ns"] / 1e9) if row["bus_bytes"] is not None and row["bus_ns"] else None
    mark = "≥ " if bus is not None and bounds.get(key) == "lower" else ""
    return [
        name(row["op"], 40),
        clean(row["dim"] or UNKNOWN),
        name(row["group"], 32),
        name(row["module"], 56),
        _calls(row["calls"] / by.divisor),
        show("_ns", per["dur_ns"]),
        show("_ns", per["hidden_ns"]),
        Share(show("_ns", per["exposed_ns"]), exposed / whole_ns if exposed and whole_ns else 0.0, "comm"),
        show("size_bytes", size),
        mark + show("busbw_bytes_per_s", bus),
        reasons.get(key, ""),
    ]


def _reasons(found: pa.Table) -> dict[tuple[Any, ...], str]:
    """The reason with most exposed time, per key."""
    reasons: dict[tuple[Any, ...], str] = {}
    for row in totals(found, [*KEYS, "blocked_by"], ["exposed_ns"], order="exposed_ns"):
        if row["blocked_by"] and row["exposed_ns"]:
            reasons.setdefault(tuple(row[k] for k in KEYS), BLOCKED.get(row["blocked_by"], clean(row["blocked_by"])))
    return reasons


def _calls(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"
