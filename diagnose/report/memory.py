"""Where the memory went: parts at the failure, the peak and the end; over time; the holes against the request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report import _memory_figures as draw
from diagnose.report._blocks import UNKNOWN_NAME, Block, Figure, Grid, Section, Share, Swatch, Text, columns, known
from diagnose.report._memory_parts import memory_part
from diagnose.report._text import clean, name
from diagnose.units import show

ORDER = 85
MOST_ROWS = 12
MOST_PLACES = 24
MOST_TRACKS = 4
MOST_POINTS = 600
MOMENTS = {"oom": "at the failure", "peak": "at the peak", "end": "at the end"}
_LINES = {
    "reserved_bytes": "reserved",
    "used_bytes": "in use on the device",
    "peak_allocated_bytes": "peak allocated",
    "peak_reserved_bytes": "peak reserved",
}
Rows = list[dict[str, Any]]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no input says anything about memory."""
    moments = _rows(tables, "memory_moments")
    parts = _rows(tables, "memory_parts")
    tracks = _tracks(tables.get("memory"))
    if not moments and not tracks:
        return None
    blocks: list[Block] = []
    if parts:
        blocks += [_bars(parts, moments), _parts(parts)]
    if compared := (diagnosis.plan or {}).get("memory_compared"):
        blocks.append(_compared(compared))
    if moments:
        blocks.append(_moments(moments))
    blocks += [_track(key, rows) for key, rows in tracks[:MOST_TRACKS]]
    if len(tracks) > MOST_TRACKS:
        blocks.append(Text(f"{len(tracks) - MOST_TRACKS} more ranks and devices are not drawn.", quiet=True))
    if holes := _rows(tables, "holes"):
        blocks += _holes(holes, moments)
    return Section("memory", "Memory", blocks, _lead(moments))


def _rows(tables: dict[str, pa.Table], table: str) -> Rows:
    found = tables.get(table)
    return [] if found is None else list(found.to_pylist())


def _place(row: dict[str, Any]) -> str:
    rank, device = row["rank"], row["device"]
    said = "unknown rank" if rank is None else f"rank {rank}" if rank >= 0 else f"unknown rank {-rank}"
    on = {None: "", -1: ", host memory"}.get(device, f", device {device}")
    return f"{said}{on}"


def _lead(moments: Rows) -> str:
    failed = [m for m in moments if m["moment"] == "oom"]
    if failed:
        worst = max(failed, key=lambda m: m["tried_bytes"] or 0)
        asked = f"asked for {show('_bytes', worst['tried_bytes'])}"
        free = f"{show('_bytes', worst['recoverable_bytes'])} were free in all"
        hole = worst["largest_hole_bytes"]
        piece = f", the largest piece {show('_bytes', hole)}" if hole is not None else ""
        return f"{_place(worst)} {asked} and failed; {free}{piece}."
    best = max(moments, key=lambda m: m["allocated_bytes"] or 0, default=None)
    if best is None:
        return "Memory figures by step."
    since = "" if best["whole"] is not False else ", counted from the start of the recording"
    return f"{_place(best)} had {show('_bytes', best['allocated_bytes'])} allocated {MOMENTS[best['moment']]}{since}."


def _bars(parts: Rows, moments: Rows) -> Figure:
    keys = list(dict.fromkeys((_place(r), r["moment"], r["failure"]) for r in parts))
    shown = keys[:MOST_PLACES]
    held = {(_place(r), r["moment"], r["failure"], r["part"]): r["bytes"] for r in parts}
    found = draw.order({r["part"]: None for r in parts})
    sizes = {part: [held.get((*key, part), 0) for key in shown] for part in found}
    devices = {m["capacity_bytes"] for m in moments} - {None}
    capacity = devices.pop() if len(devices) == 1 else None
    labels = [f"{place} {MOMENTS[moment]}{f' ({n + 1})' if n else ''}" for place, moment, n in shown]
    spec = draw.bars(labels, sizes, capacity)
    more = f"{len(keys) - len(shown)} more are in the table." if len(keys) > len(shown) else ""
    alt = "; ".join(f"{label}: {show('_bytes', sum(sizes[p][i] for p in found))}" for i, label in enumerate(labels))
    return Figure("Memory by part", spec, 36 * len(shown) + 120, alt, more)


def _parts(parts: Rows) -> Grid:
    heads = columns("Where and when", "Part", ">Bytes", ">Share", ">Confidence", "Most of it made at", "Rests on")
    whole: dict[tuple[Any, ...], int] = {}
    for row in parts:
        key = row["rank"], row["device"], row["moment"], row["failure"]
        whole[key] = whole.get(key, 0) + row["bytes"]
    cells = []
    for row in parts[: MOST_ROWS * 4]:
        total = whole[row["rank"], row["device"], row["moment"], row["failure"]]
        shown = memory_part(row["part"])
        share = row["bytes"] / total if total else None
        cells.append(
            [
                f"{_place(row)} {MOMENTS[row['moment']]}",
                Swatch(shown.label, row["part"]),
                show("_bytes", row["bytes"]),
                Share(show("_ratio", share), share, row["part"]),
                show("_ratio", row["confidence_ratio"]) if row["confidence_ratio"] is not None else UNKNOWN_NAME,
                name(row["top_place"], 48),
                name(row["source"], 60),
            ]
        )
    more = f"{len(parts) - len(cells):,} more rows are in diagnosis.json." if len(parts) > len(cells) else ""
    return known(Grid("Parts, with what each rests on", heads, cells, more))


def _compared(found: dict[str, Any]) -> Grid:
    """What the formulas give for the job described beside what was held."""
    heads = columns("Part", ">Formula", ">Held", ">Difference")
    cells = [
        [
            Swatch(memory_part(row["part"]).label, row["part"]),
            "no formula" if row["predicted_bytes"] is None else show("_bytes", row["predicted_bytes"]),
            show("_bytes", row["measured_bytes"]),
            _difference(row),
        ]
        for row in found["parts"]
    ]
    said = (
        f"{_place(found)} {MOMENTS[found['moment']]} held {show('_bytes', found['measured_bytes'])}; the formulas give "
        f"{show('_bytes', found['predicted_bytes'])} for this job and layout."
    )
    if unknown := found["unknown_bytes"]:
        said += f" {show('_bytes', unknown)} could not be told apart and may belong to any part."
    return known(Grid("Predicted against measured", heads, cells, said))


def _difference(row: dict[str, Any]) -> str:
    difference = row["difference_bytes"]
    if difference is None:
        return "" if row["predicted_bytes"] is None else "within the unknown"
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    return f"{sign}{show('_bytes', abs(difference))}"


def _moments(moments: Rows) -> Grid:
    names = {
        "tried_bytes": "Asked for", "device_free_bytes": "Free on device", "allocated_bytes": "Allocated",
        "reserved_bytes": "Reserved", "stranded_bytes": "Stranded", "cached_bytes": "Cached",
        "largest_hole_bytes": "Largest hole", "internal_bytes": "Rounding", "non_torch_bytes": "Outside PyTorch",
        "other_bytes": "Other processes", "capacity_bytes": "Device",
    }  # fmt: skip
    heads = columns("Where and when", *(f">{title}" for title in names.values()), "Source")
    cells = [
        [
            f"{_place(m)} {MOMENTS[m['moment']]}",
            *(UNKNOWN_NAME if m[key] is None else show("_bytes", m[key]) for key in names),
            clean(m["source"]),
        ]
        for m in moments[:MOST_PLACES]
    ]
    more = f"{len(moments) - len(cells):,} more rows." if len(moments) > len(cells) else ""
    return known(Grid("State of the allocator", heads, cells, more))


def _tracks(memory: pa.Table | None) -> list[tuple[tuple[Any, ...], Rows]]:
    """Samples per (rank, device, source) that change, fullest first."""
    if memory is None or not memory.num_rows:
        return []
    keys, figures = ["rank", "device", "source"], ("allocated_bytes", "reserved_bytes")
    spans = memory.group_by(keys).aggregate([(name, "min_max") for name in figures])
    changing = [
        row for row in spans.to_pylist() if any(len(set(row[f"{name}_min_max"].values())) > 1 for name in figures)
    ]
    if not changing:
        return []
    found: dict[tuple[Any, ...], Rows] = {tuple(row[k] for k in keys): [] for row in changing}
    for row in memory.to_pylist():
        if (rows := found.get(tuple(row[k] for k in keys))) is not None:
            rows.append(row)

    def fullest(item: tuple[tuple[Any, ...], Rows]) -> int:
        return max(r["allocated_bytes"] or r["reserved_bytes"] or 0 for r in item[1])

    return sorted(found.items(), key=fullest, reverse=True)


def _track(key: tuple[Any, ...], rows: Rows) -> Figure:
    rows = _thinned(rows)
    place = _place(rows[0])
    sizes, lines = _series(rows, with_parts=key[2] != "series")
    if key[2] == "series":
        at, axis = [float(r["step"]) for r in rows], "step"
    elif all(r["ts_ns"] is not None for r in rows[1:]):
        first = next(r["ts_ns"] for r in rows if r["ts_ns"] is not None)
        at, axis = [((r["ts_ns"] or first) - first) / 1e6 for r in rows], "ms from the start of the recording"
    else:
        at, axis = [float(r["index"]) for r in rows], "allocator events"
    tops = [r["allocated_bytes"] or r["reserved_bytes"] or 0 for r in rows]
    top = int(np.argmax(tops))
    peak = (at[top], f"peak {show('_bytes', tops[top])}")
    spec = draw.over_time(at, sizes, lines, axis, peak)
    alt = f"{place}: {peak[1]} at {at[top]:,.6g} {axis}; at the end {show('_bytes', tops[-1])}."
    return Figure(f"Memory over time, {place}", spec, 340, alt, f"From the {key[2]}.")


def _series(rows: Rows, *, with_parts: bool) -> tuple[dict[str, list[int]], dict[str, list[int | None]]]:
    lines = {title: [r[column] for r in rows] for column, title in _LINES.items()}
    lines = {title: values for title, values in lines.items() if any(v is not None for v in values)}
    if not with_parts:
        return {}, {"allocated": [r["allocated_bytes"] for r in rows], **lines}
    columns_ = {c.removesuffix("_bytes"): c for c in rows[0] if c.endswith("_bytes") and c not in _LINES}
    parts = {p: [r[c] or 0 for r in rows] for p, c in columns_.items() if p != "allocated"}
    kept = {p: values for p, values in parts.items() if any(values)}
    return {p: kept[p] for p in draw.order(kept)}, lines


def _thinned(rows: Rows) -> Rows:
    """At most MOST_POINTS rows, in each stretch the fullest one."""
    if len(rows) <= MOST_POINTS:
        return rows
    edges = np.linspace(0, len(rows), MOST_POINTS + 1, dtype=int)
    spans = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [max(rows[a:b], key=lambda r: r["allocated_bytes"] or r["reserved_bytes"] or 0) for a, b in spans]


def _holes(holes: Rows, moments: Rows) -> list[Block]:
    asked = [m["tried_bytes"] for m in moments if m["moment"] == "oom" and m["tried_bytes"]]
    shown = sorted(holes, key=lambda h: -h["free_bytes"])[:MOST_ROWS]
    labels = [f"0x{h['segment']:x}" for h in shown]
    sizes = {
        "live": [h["live_bytes"] for h in shown],
        "largest_hole": [h["largest_hole_bytes"] for h in shown],
        "smaller_holes": [h["free_bytes"] - h["largest_hole_bytes"] for h in shown],
    }
    spec = draw.bars(labels, sizes, None)
    if asked:
        unit, _ = draw.axis_unit(max(h["size_bytes"] for h in shown))
        spec["layout"]["shapes"] = [draw.line(max(asked) / unit)]
        spec["layout"]["annotations"] = [draw.note(max(asked) / unit, f"request {show('_bytes', max(asked))}")]
    alt = f"{len(holes):,} segments have free memory; the largest hole is " + show(
        "_bytes", max(h["largest_hole_bytes"] for h in holes)
    )
    heads = columns("Segment", ">Size", ">Free", ">Largest hole", ">Holes", ">Live blocks", "Kept by", ">Its bytes")
    cells = [
        [
            label,
            *(show("_bytes", h[key]) for key in ("size_bytes", "free_bytes", "largest_hole_bytes")),
            f"{h['holes_count']:,}",
            f"{h['live_count']:,}",
            name(h["pinned_by"], 48) if h["live_count"] else "nobody: wholly free",
            UNKNOWN_NAME if h["pinned_bytes"] is None else show("_bytes", h["pinned_bytes"]),
        ]
        for label, h in zip(labels, shown, strict=True)
    ]
    more = f"{len(holes) - len(shown):,} more segments." if len(holes) > len(shown) else ""
    figure = Figure("Segments with most free memory", spec, 30 * len(shown) + 110, f"{alt}.")
    return [figure, known(Grid("Who keeps these segments", heads, cells, more))]
