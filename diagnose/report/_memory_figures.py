"""Plotly figures of memory as plain dicts: stacked bars of parts, areas over time, a segment with its holes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diagnose.report._memory_parts import MEMORY_PARTS, memory_part
from diagnose.report._text import plotly as literal
from diagnose.units import show

_LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.1, "x": 0, "xanchor": "left", "traceorder": "normal"}


def axis_unit(largest: float) -> tuple[int, str]:
    """Divisor and unit of an axis of bytes."""
    return (1 << 20, "MiB") if largest < 4 << 30 else (1 << 30, "GiB")


def bars(places: Sequence[str], sizes: Mapping[str, Sequence[int]], capacity: int | None) -> dict[str, Any]:
    """One stacked bar per place: `sizes[part][i]` in bytes; a line at the device's size where it is known."""
    tops = [sum(values[i] for values in sizes.values()) for i in range(len(places))]
    unit, name = axis_unit(max([*tops, capacity or 0]))
    data = []
    for key, values in sizes.items():
        shown = memory_part(key)
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": literal(shown.label),
                "y": [literal(p) for p in places],
                "x": [round(v / unit, 3) for v in values],
                "customdata": [show("_bytes", int(v)) for v in values],
                "hovertemplate": "<b>%{y}</b><br>%{fullData.name} %{customdata}<extra></extra>",
                "marker": {
                    "color": shown.colour,
                    "pattern": {"shape": "/" if shown.hatched else "", "solidity": 0.35},
                    "line": {"width": 0},
                },
            }
        )
    layout = _layout(barmode="stack", bargap=0.3)
    layout["yaxis"] = {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False}
    layout["xaxis"] = {"title": {"text": name}, "rangemode": "tozero"}
    if capacity:
        layout["shapes"] = [line(capacity / unit)]
        layout["annotations"] = [note(capacity / unit, f"device {show('_bytes', capacity)}")]
    return {"data": data, "layout": layout}


def over_time(
    at: Sequence[float], sizes: Mapping[str, Sequence[int]], lines: Mapping[str, Sequence[int | None]], axis: str,
    peak: tuple[float, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Stacked areas of parts and lines (reserved, ...) in bytes over `at`; the peak is marked."""
    largest = max([*(v or 0 for values in lines.values() for v in values), *_tops(sizes, len(at)), 1])
    unit, name = axis_unit(largest)
    data: list[dict[str, Any]] = []
    for key, values in sizes.items():
        shown = memory_part(key)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "stackgroup": "parts",
                "name": literal(shown.label),
                "x": list(at),
                "y": [round(v / unit, 3) for v in values],
                "line": {"width": 0, "shape": "hv", "color": shown.colour},
                "fillcolor": shown.colour,
                "hovertemplate": f"%{{fullData.name}} %{{y}} {name}<extra></extra>",
            }
        )
    dashes = ("solid", "dash", "dot", "dashdot")
    for number, (key, heights) in enumerate(lines.items()):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": literal(key),
                "x": list(at),
                "y": [None if v is None else round(v / unit, 3) for v in heights],
                "line": {"width": 1.5, "shape": "hv", "dash": dashes[number % 4], "color": "#7b8494"},
                "hovertemplate": f"%{{fullData.name}} %{{y}} {name}<extra></extra>",
            }
        )
    layout = _layout(hovermode="x unified", dragmode="zoom")
    layout["xaxis"] = {"title": {"text": axis}, "fixedrange": False}
    layout["yaxis"] = {"title": {"text": name}, "rangemode": "tozero", "automargin": True}
    if peak is not None:
        layout["shapes"] = [line(peak[0])]
        layout["annotations"] = [note(peak[0], literal(peak[1]))]
    return {"data": data, "layout": layout}


def _tops(sizes: Mapping[str, Sequence[int]], count: int) -> list[int]:
    return [sum(values[i] for values in sizes.values()) for i in range(count)]


def line(value: float) -> dict[str, Any]:
    """A line across the figure at `value` of the horizontal axis."""
    ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    return {"type": "line", **ends, "line": {"width": 1.5, "dash": "dot", "color": "#7b8494"}}


def note(value: float, text: str) -> dict[str, Any]:
    """Text at the top of such a line."""
    return {"x": value, "xref": "x", "y": 1, "yref": "paper", "text": text, "showarrow": False, "xanchor": "right",
            "yanchor": "bottom"}  # fmt: skip


def _layout(**more: Any) -> dict[str, Any]:
    fixed = {"showlegend": True, "legend": _LEGEND, "hoverlabel": {"align": "left", "namelength": -1}}
    return {**fixed, "dragmode": False, "margin": {"l": 8, "r": 12, "t": 48, "b": 40}, **more}


def order(parts: Mapping[str, Any]) -> list[str]:
    """Keys of parts in the order in which they are stacked."""
    return [key for key in MEMORY_PARTS if key in parts] + [key for key in parts if key not in MEMORY_PARTS]
