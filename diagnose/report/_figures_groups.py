"""Process groups as lanes over ranks: plain plotly dicts, a run of neighbouring ranks is one bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnose.report._parts import part
from diagnose.report._text import plotly as literal

_MOST_SHADES = 8
_PALEST = 0.3
_UNKNOWN = "#8a93a3"


def lanes(
    labels: Sequence[str], groups: Sequence[Sequence[tuple[str, list[int], str]]], borders: Sequence[int], ranks: int
) -> dict[str, Any]:
    """`groups[lane]`: (dimension or `unknown`, ranks, hover text) each; `borders`: first ranks of nodes."""
    traces: dict[tuple[str, float], dict[str, list[Any]]] = {}
    for lane, own in enumerate(groups):
        shades = min(len(own), _MOST_SHADES)
        for i, (dim, members, hover) in enumerate(own):
            shade = 1 - (1 - _PALEST) * (i % shades) / max(1, shades - 1)
            bars = traces.setdefault((dim, round(shade, 3)), {"y": [], "base": [], "x": [], "customdata": []})
            for start, length in _runs(members):
                bars["y"].append(lane)
                bars["base"].append(start - 0.5)
                bars["x"].append(length)
                bars["customdata"].append(literal(hover, 160))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            **bars,
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": _colour(dim), "opacity": shade, "line": {"width": 1, "color": "rgba(125,135,150,0.5)"}},
            "width": 0.72,
        }
        for (dim, shade), bars in traces.items()
    ]
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1, "dash": "dot", "color": "#7b8494"}}
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "margin": {"l": 8, "r": 12, "t": 8, "b": 40},
        "shapes": [line | {"x0": b - 0.5, "x1": b - 0.5} for b in borders],
        "xaxis": {"title": {"text": "rank"}, "range": [-0.5, ranks - 0.5], "showgrid": False, "zeroline": False},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
            "tickvals": list(range(len(labels))),
            "ticktext": [literal(label, 44) for label in labels],
        },
    }
    if ranks <= 16:
        layout["xaxis"]["dtick"] = 1
    return {"data": data, "layout": layout}


def _colour(dim: str) -> str:
    return _UNKNOWN if dim in ("unknown", "other") else part(f"{dim}_comm").colour


def _runs(members: Sequence[int]) -> list[tuple[int, int]]:
    """(first, length) of neighbouring numbers."""
    runs: list[list[int]] = []
    for rank in sorted(set(members)):
        if runs and rank == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([rank, 1])
    return [(first, length) for first, length in runs]
