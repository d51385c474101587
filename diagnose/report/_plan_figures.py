"""Figures of a plan as plain plotly dicts: step bars by part, and time against memory with the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from diagnose.report._figures import axis_unit, ranking
from diagnose.report._parts import PARTS_SHOWN
from diagnose.report._text import plotly as literal
from diagnose.units import show

PARTS = {
    "compute": ("compute", PARTS_SHOWN["compute"].colour),
    "tp": ("TP communication", PARTS_SHOWN["tp_comm"].colour),
    "cp": ("CP communication", PARTS_SHOWN["cp_comm"].colour),
    "ep": ("EP dispatch", PARTS_SHOWN["ep_comm"].colour),
    "pp": ("PP sends", PARTS_SHOWN["pp_comm"].colour),
    "dp": ("DP communication", PARTS_SHOWN["dp_comm"].colour),
    "bubble": ("pipeline bubble", "#6a51a3"),
    "optimizer": ("optimizer", "#2a9d8f"),
    "other": ("host, skew, faults", "#b3bbc8"),
}
"""Part of a predicted step -> words and colour, in the order in which they are stacked."""


class Point(NamedTuple):
    """One layout: its name, step and expected peak with the interval."""

    name: str
    step_ns: int
    memory_bytes: int
    low_bytes: int
    high_bytes: int


def steps(names: Sequence[str], parts: Sequence[dict[str, int]]) -> dict[str, Any]:
    """One stacked bar per layout; `parts[i]`: part -> ns. Parts that are nothing anywhere are left out."""
    series = [
        (label, colour, 1.0, [own.get(key, 0) for own in parts])
        for key, (label, colour) in PARTS.items()
        if any(own.get(key, 0) for own in parts)
    ]
    return ranking(names, series)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats in both time and memory, fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.step_ns, p.memory_bytes)):
        if not kept or point.memory_bytes < kept[-1].memory_bytes:
            kept.append(point)
    return kept


def pareto(current: Point, others: Sequence[Point], limit_bytes: int | None) -> dict[str, Any]:
    """Step against expected peak memory; whiskers are the interval, the dotted line is the device."""
    unit_ns, unit = axis_unit(max(p.step_ns for p in (current, *others)))
    best = frontier([current, *others])
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "no other layout is faster and smaller",
        "x": [p.step_ns / unit_ns for p in best],
        "y": [p.memory_bytes / 2**30 for p in best],
        "line": {"shape": "hv", "dash": "dot", "color": "#7b8494", "width": 1.5},
        "hoverinfo": "skip",
    }
    groups = (("layouts", others, "#4a80c4", "circle"), ("current layout", [current], "#b3401c", "diamond"))
    data = [line, *(_points(name, own, colour, symbol, unit_ns) for name, own, colour, symbol in groups if own)]
    layout: dict[str, Any] = {
        "showlegend": True,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        "dragmode": False,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 40},
        "hoverlabel": {"align": "left", "namelength": -1},
        "xaxis": {"title": {"text": f"step, {unit}"}},
        "yaxis": {"title": {"text": "peak memory, GiB"}, "rangemode": "tozero", "automargin": True},
    }
    if limit_bytes:
        at = limit_bytes / 2**30
        ends = {"x0": 0, "x1": 1, "y0": at, "y1": at, "xref": "paper", "yref": "y"}
        layout["shapes"] = [{"type": "line", **ends, "line": {"width": 1.5, "dash": "dot", "color": "#b3401c"}}]
        words = {"text": f"device {show('_bytes', limit_bytes)}", "showarrow": False}
        layout["annotations"] = [
            {**words, "x": 1, "xref": "paper", "y": at, "yref": "y", "xanchor": "right", "yanchor": "bottom"}
        ]
    return {"data": data, "layout": layout}


def _points(name: str, points: Sequence[Point], colour: str, symbol: str, unit_ns: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [p.step_ns / unit_ns for p in points],
        "y": [p.memory_bytes / 2**30 for p in points],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(0, p.high_bytes - p.memory_bytes) / 2**30 for p in points],
            "arrayminus": [max(0, p.memory_bytes - p.low_bytes) / 2**30 for p in points],
            "thickness": 1,
            "width": 3,
        },
        "customdata": [
            f"{literal(p.name)}<br>{show('_ns', p.step_ns)}, {show('_bytes', p.memory_bytes)} "
            f"({show('_bytes', p.low_bytes)} to {show('_bytes', p.high_bytes)})"
            for p in points
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"size": 11, "color": colour, "symbol": symbol},
    }
