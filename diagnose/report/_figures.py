"""Plotly figures as plain dicts: data and layout, no plotly import. Colours of text and grid come from the page.

Axes are in one unit that fits the longest bar; labels and hovers carry each figure in its own.
Every string that reaches plotly goes through `_text.plotly`: plotly would read tags in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.report._parts import Part, part
from diagnose.report._text import plotly as literal
from diagnose.units import show

ROW_PX = 30


def axis_unit(longest_ns: float) -> tuple[float, str]:
    """Divisor and unit of a time axis."""
    return (1e3, "us") if longest_ns < 1e6 else (1e6, "ms") if longest_ns < 10e9 else (1e9, "s")


def waterfall(parts: Sequence[dict[str, Any]], total_name: str) -> dict[str, Any]:
    """Parts end to end from the left, one row each, then the total: (part, dur_ns) dicts in order."""
    total = sum(p["dur_ns"] for p in parts)
    unit_ns, unit = axis_unit(total)
    starts = np.cumsum([0, *(p["dur_ns"] for p in parts)])
    shown = [part(p["part"]) for p in parts]
    names = [literal(s.label) for s in shown] + [literal(total_name)]
    texts = [f"{show('_ns', p['dur_ns'])} · {show('_ratio', p['dur_ns'] / total)}" for p in parts] + [
        show("_ns", total)
    ]
    exact = [f"{p['dur_ns']:,} ns<br>{literal(s.meaning, 160)}" for p, s in zip(parts, shown, strict=True)]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [p["dur_ns"] / unit_ns for p in parts] + [total / unit_ns],
        "base": [float(s) / unit_ns for s in starts[:-1]] + [0.0],
        "text": texts,
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [*exact, f"{total:,} ns"],
        "hovertemplate": "<b>%{y}</b><br>%{customdata}<extra></extra>",
        "marker": _marker([*shown, Part("", "", "#7b8494")]),
    }
    layout = _layout(margin={"l": 8, "r": 8, "t": 8, "b": 40}, bargap=0.28, meta="labelled")
    layout["yaxis"] = {"autorange": "reversed", "automargin": True, "showgrid": False, "zeroline": False}
    layout["xaxis"] = {"title": {"text": unit}, "range": [0, total / unit_ns * 1.34], "rangemode": "tozero"}
    return {"data": [bar], "layout": layout}


def stacked(
    places: Sequence[str], durations: Mapping[str, Sequence[int]], title: str, hover: Sequence[str] = ()
) -> dict[str, Any]:
    """One stacked bar per place: `durations[part][i]` in ns. `hover[i]` is added to the hover of place i."""
    unit_ns, unit = axis_unit(max(np.sum(list(durations.values()), axis=0), default=0))
    notes = [literal(h) for h in hover] or [""] * len(places)
    data = []
    for key, values in durations.items():
        shown = part(key)
        data.append(
            {
                "type": "bar",
                "name": literal(shown.label),
                "x": [literal(p) for p in places],
                "y": [v / unit_ns for v in values],
                "customdata": [f"{show('_ns', int(v))}<br>{n}" for v, n in zip(values, notes, strict=True)],
                "hovertemplate": f"<b>{title} %{{x}}</b><br>%{{fullData.name}} %{{customdata}}<extra></extra>",
                "marker": _marker(shown),
            }
        )
    layout = _layout(
        barmode="stack",
        bargap=min(0.7, max(0.18, 1 - 0.09 * len(places))),
        showlegend=True,
        legend=_LEGEND,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
    )
    layout["xaxis"] = {
        "type": "category",
        "title": {"text": title},
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
    }
    layout["yaxis"] = {"title": {"text": unit}, "automargin": True, "rangemode": "tozero"}
    return {"data": data, "layout": layout}


def timeline(lanes: Sequence[str], shapes: Sequence[dict[str, Any]], axis_ns: int) -> dict[str, Any]:
    """Lanes over time. A shape set: part, lane, start_ns and dur_ns arrays from the left edge, literal hover texts."""
    unit_ns, unit = axis_unit(axis_ns)
    data = []
    for group in shapes:
        shown = part(group["part"])
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": literal(shown.label),
                "showlegend": group["lane"] == "idle",
                "y": [literal(group["lane"])] * len(group["dur_ns"]),
                "x": _rounded(group["dur_ns"], unit_ns),
                "base": _rounded(group["start_ns"], unit_ns),
                "customdata": group["hover"],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"color": shown.colour, "line": {"width": 0}},
                "width": 0.72,
            }
        )
    layout = _layout(barmode="overlay", margin={"l": 8, "r": 12, "t": 8, "b": 40}, hovermode="closest", dragmode="zoom")
    layout |= {"showlegend": any(group["lane"] == "idle" for group in shapes), "legend": _LEGEND}
    layout["xaxis"] = {
        "title": {"text": f"{unit} from the start"},
        "range": [0, axis_ns / unit_ns],
        "fixedrange": False,
    }
    layout["yaxis"] = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [literal(lane) for lane in reversed(lanes)],
        "range": [-0.6, len(lanes) - 0.4],
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
    }
    return {"data": data, "layout": layout}


def ranking(labels: Sequence[str], series: Sequence[tuple[str, str, float, Sequence[int]]]) -> dict[str, Any]:
    """Horizontal stacked bars, first on top. A series: name, colour, opacity, ns per label. Labels may repeat."""
    unit_ns, unit = axis_unit(max(np.sum([s[3] for s in series], axis=0), default=0))
    rows = list(range(len(labels)))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": literal(name),
            "y": rows,
            "x": [v / unit_ns for v in values],
            "customdata": [
                f"{literal(label)}<br>{literal(name)} {show('_ns', int(v))}"
                for label, v in zip(labels, values, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": colour, "opacity": opacity},
        }
        for name, colour, opacity, values in series
    ]
    many = len(series) > 1
    layout = _layout(
        barmode="stack", bargap=0.3, showlegend=many, legend=_LEGEND, margin={"l": 8, "r": 12, "t": 8, "b": 40}
    )
    layout["yaxis"] = {
        "autorange": "reversed",
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
        "tickvals": rows,
        "ticktext": [literal(label, 38) for label in labels],
    }
    layout["xaxis"] = {"title": {"text": unit}, "rangemode": "tozero"}
    return {"data": data, "layout": layout}


def height(rows: int, *, legend: bool = False) -> int:
    """Pixels for a figure of that many horizontal rows."""
    return ROW_PX * rows + 70 + (36 if legend else 0)


_LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left", "traceorder": "normal"}


def _layout(**more: Any) -> dict[str, Any]:
    fixed = {"showlegend": False, "hoverlabel": {"align": "left", "namelength": -1}, "dragmode": False}
    return {**fixed, **more}


def _marker(shown: Part | list[Part]) -> dict[str, Any]:
    if isinstance(shown, Part):
        pattern = {"shape": "/" if shown.hatched else "", "solidity": 0.35}
        return {"color": shown.colour, "pattern": pattern, "line": {"width": 0}}
    shapes = ["/" if s.hatched else "" for s in shown]
    return {"color": [s.colour for s in shown], "pattern": {"shape": shapes, "solidity": 0.35}, "line": {"width": 0}}


def _rounded(values_ns: npt.NDArray[np.int64], unit_ns: float) -> list[float]:
    digits = {1e3: 2, 1e6: 4, 1e9: 6}[unit_ns]
    rounded: list[float] = np.round(values_ns / unit_ns, digits).tolist()
    return rounded
