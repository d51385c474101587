"""Plotly figures of mixtures of experts as plain dicts: load by layer and expert, load over steps, bytes, rounds.

Colours: an even load is white, more is warm, less is blue, on a scale of powers of two; bytes go from grey (needed) to
warm (padding, copies) to red (unexplained). Every mark also has its figure in the hover and the axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from diagnose.report._parts import part
from diagnose.report._text import plotly as literal
from diagnose.units import show

GRID = "rgba(128,128,128,0.25)"
_SCALE = [[0, "#2b5c9e"], [0.25, "#7fa8d6"], [0.5, "#f4f2ee"], [0.75, "#e39a4b"], [1, "#9c3d10"]]
_MOST_LOG2 = 3
"""The scale ends at an eighth and at eight times an even share."""
LINES = {"busiest expert": "#9c3d10", "busiest expert-parallel rank": "#4a80c4", "by chance": "#7b8494"}
PIECES = {
    "needed": "#8a97a8", "padding": "#d9a441", "copies": "#d9822b", "unexplained": "#b3261e", "not sent": "#c8ccd3",
}  # fmt: skip
_LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.06, "x": 0, "xanchor": "left", "traceorder": "normal"}


def load_map(layers: Sequence[str], experts: Sequence[int], ratio: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Heat map: one row a layer, one column an expert, colour the load over an even share (None: no such expert)."""
    ends = [-_MOST_LOG2, _MOST_LOG2]
    data = {
        "type": "heatmap", "x": list(experts), "y": [literal(layer) for layer in layers],
        "z": [[None if v is None else _log2(v) for v in row] for row in ratio],
        "customdata": [["" if v is None else f"{v:.2f}" for v in row] for row in ratio],
        "hovertemplate": "layer %{y}, expert %{x}: %{customdata} times an even share<extra></extra>",
        "zmin": ends[0], "zmax": ends[1], "colorscale": _SCALE, "xgap": 1 if len(experts) <= 64 else 0, "ygap": 1,
        "colorbar": {
            "tickvals": list(range(ends[0], ends[1] + 1)), "thickness": 12, "outlinewidth": 0,
            "ticktext": ["1/8", "1/4", "1/2", "even", "2x", "4x", "8x"],
        },
    }  # fmt: skip
    layout = _layout(showlegend=False, margin={"l": 8, "r": 12, "t": 12, "b": 44})
    layout["xaxis"] = {"title": {"text": "expert"}, "showgrid": False, "zeroline": False, "tickformat": "d"}
    layout["yaxis"] = {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False,
                       "title": {"text": "layer"}}  # fmt: skip
    return {"data": [data], "layout": layout}


def _log2(value: float) -> float:
    lowest, highest = 2.0**-_MOST_LOG2, 2.0**_MOST_LOG2
    return round(math.log2(min(max(value, lowest), highest)), 3)


def over_steps(lines: Mapping[str, tuple[Sequence[int], Sequence[float | None]]]) -> dict[str, Any]:
    """Load (largest over mean) over steps; one line per measure."""
    data = [
        {
            "type": "scatter", "mode": "lines+markers" if len(step) < 40 else "lines", "name": literal(name),
            "x": list(step), "y": [None if v is None else round(v, 4) for v in value],
            "line": {"width": 1.8, "color": LINES[name], "dash": "dot" if name == "by chance" else "solid"},
            "hovertemplate": "step %{x}: %{y:.2f} times the mean<extra>%{fullData.name}</extra>",
        }
        for name, (step, value) in lines.items()
    ]  # fmt: skip
    layout = _layout(hovermode="closest")
    layout["xaxis"] = {"title": {"text": "step"}, "gridcolor": GRID, "zeroline": False}
    layout["yaxis"] = {"title": {"text": "largest over mean"}, "rangemode": "tozero", "gridcolor": GRID,
                       "automargin": True}  # fmt: skip
    return {"data": data, "layout": layout}


def budget(bars: Sequence[tuple[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Stacked bars of bytes per exchange and rank, one per (name, piece -> bytes)."""
    largest = max([sum(pieces.values()) for _, pieces in bars] or [1.0])
    unit, name = next(
        (u, n) for u, n in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")) if largest >= u or u == 1
    )
    data = []
    for piece, colour in PIECES.items():
        if not any(pieces.get(piece) for _, pieces in bars):
            continue
        data.append(
            {
                "type": "bar", "orientation": "h", "name": piece, "y": [literal(bar) for bar, _ in bars],
                "x": [round(pieces.get(piece, 0.0) / unit, 4) for _, pieces in bars],
                "customdata": [show("_bytes", pieces.get(piece, 0.0)) for _, pieces in bars],
                "hovertemplate": "<b>%{y}</b><br>%{fullData.name} %{customdata}<extra></extra>",
                "marker": {"color": colour, "line": {"width": 0},
                           "pattern": {"shape": "/" if piece == "not sent" else "", "solidity": 0.35}},
            }
        )  # fmt: skip
    layout = _layout(barmode="stack", bargap=0.35)
    layout["xaxis"] = {"title": {"text": name}, "rangemode": "tozero", "gridcolor": GRID}
    layout["yaxis"] = {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False}
    return {"data": data, "layout": layout}


def rounds(
    ranks: Sequence[str], pieces: Sequence[tuple[str, str, Sequence[tuple[int, float, float, str]]]], unit: str
) -> dict[str, Any]:
    """Time line: per kind of piece (name, part, [(rank row, start, length, hover)]) bars on the row of their rank."""
    data = []
    for name, key, spans in pieces:
        shown = part(key)
        data.append(
            {
                "type": "bar", "orientation": "h", "name": literal(name), "y": [ranks[row] for row, *_ in spans],
                "base": [start for _, start, _, _ in spans], "x": [length for _, _, length, _ in spans],
                "customdata": [hover for *_, hover in spans],
                "hovertemplate": "<b>%{y}</b><br>%{customdata}<extra>%{fullData.name}</extra>",
                "marker": {"color": shown.colour, "line": {"width": 0},
                           "pattern": {"shape": "/" if shown.hatched else "", "solidity": 0.35}},
            }
        )  # fmt: skip
    layout = _layout(barmode="overlay", bargap=0.25)
    layout["xaxis"] = {"title": {"text": f"{unit} from the first exchange shown"}, "gridcolor": GRID, "zeroline": False}
    layout["yaxis"] = {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False,
                       "categoryorder": "array", "categoryarray": list(ranks)}  # fmt: skip
    return {"data": data, "layout": layout}


def _layout(**more: Any) -> dict[str, Any]:
    fixed = {"showlegend": True, "legend": _LEGEND, "hoverlabel": {"align": "left", "namelength": -1}}
    return {**fixed, "dragmode": False, "margin": {"l": 8, "r": 12, "t": 48, "b": 44}, **more}
