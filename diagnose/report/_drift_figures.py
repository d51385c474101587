"""Plotly figures of metrics over steps as plain dicts: rows above each other on one axis of steps; small multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from diagnose.report._text import plotly as literal

GRID = "rgba(128,128,128,0.25)"
LINE, STALL, BAND, MARK = "#3b6fb6", "#c2410c", "rgba(59,111,182,0.16)", "#7b8494"
ROW_GAP_RATIO = 0.06
MOST_ACROSS = 4
_KINDS = {"warm_up": "triangle-down", "periodic": "diamond", "single": "circle-open"}


class Row(NamedTuple):
    """One metric: title of its axis, steps, values in that unit."""

    title: str
    step: Sequence[int | None]
    value: Sequence[float | None]


class Stall(NamedTuple):
    """One long step: where, how high on the first row, kind, and what the hover says."""

    step: int
    value: float
    kind: str
    hover: str


def stacked_rows(
    rows: Sequence[Row], band: tuple[float, float] | None, changes: Sequence[int], stalls: Sequence[Stall],
    top: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Rows over one axis of steps, the first twice as high, with its steady band, changes and stalls.

    `top` cuts the first axis: a stall of minutes would flatten everything else; cut ones stand at the upper edge.
    """
    heights = [2.0, *[1.0] * (len(rows) - 1)]
    share = (1 - ROW_GAP_RATIO * (len(rows) - 1)) / sum(heights)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "showlegend": False, "hovermode": "x", "dragmode": "zoom", "margin": {"l": 8, "r": 12, "t": 24, "b": 40},
        "hoverlabel": {"align": "left", "namelength": -1},
    }  # fmt: skip
    upper = 1.0
    for number, row in enumerate(rows):
        axis = "" if number == 0 else str(number + 1)
        lower = max(0.0, upper - share * heights[number])
        data.append(
            {"type": "scatter", "mode": "lines", "x": list(row.step), "y": [_digits(v) for v in row.value],
             "yaxis": f"y{axis}", "name": literal(row.title), "connectgaps": False,
             "line": {"width": 1.4, "color": LINE},
             "hovertemplate": "step %{x}: %{y}<extra>%{fullData.name}</extra>"}
        )  # fmt: skip
        layout[f"yaxis{axis}"] = {
            "domain": [round(lower, 4), round(upper, 4)],
            "title": {"text": "<br>".join(literal(part, 34) for part in row.title.split(", ")), "font": {"size": 11}},
            "automargin": True, "gridcolor": GRID, "zeroline": False,
        }  # fmt: skip
        upper = lower - ROW_GAP_RATIO
    if top is not None:
        layout["yaxis"]["range"] = [0, top]
    layout["xaxis"] = {
        "title": {"text": "step"}, "anchor": f"y{len(rows)}" if len(rows) > 1 else "y", "fixedrange": False,
        "gridcolor": GRID, "zeroline": False,
    }  # fmt: skip
    data += [_markers(kind, [s for s in stalls if s.kind == kind], top) for kind in _KINDS if stalls]
    layout["shapes"] = [_line(step) for step in changes]
    layout["annotations"] = [
        {"x": step, "y": 1, "xref": "x", "yref": "paper", "text": f"step {step}", "showarrow": False,
         "yanchor": "bottom"}
        for step in changes
    ]  # fmt: skip
    if band is not None:
        layout["shapes"].append(
            {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": band[0], "y1": band[1],
             "fillcolor": BAND, "line": {"width": 0}, "layer": "below"}
        )  # fmt: skip
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def small_multiples(ranks: Sequence[Row], changes: Sequence[int]) -> dict[str, Any]:
    """One small plot per rank, all on the same scales."""
    across = min(MOST_ACROSS, len(ranks))
    down = math.ceil(len(ranks) / across)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "showlegend": False, "margin": {"l": 44, "r": 12, "t": 20, "b": 32}, "hovermode": "closest", "annotations": [],
        "shapes": [],
    }  # fmt: skip
    largest = max((v for row in ranks for v in row.value if v is not None), default=1.0)
    for number, row in enumerate(ranks):
        at = "" if number == 0 else str(number + 1)
        x, y = number % across, down - 1 - number // across
        data.append(
            {"type": "scatter", "mode": "lines", "x": list(row.step), "y": [_digits(v) for v in row.value],
             "xaxis": f"x{at}", "yaxis": f"y{at}", "name": literal(row.title), "line": {"width": 1.2, "color": LINE},
             "hovertemplate": "step %{x}: %{y}<extra>%{fullData.name}</extra>"}
        )  # fmt: skip
        wide, high = 1 / across, 1 / down
        layout[f"xaxis{at}"] = {
            "domain": [round(x * wide, 4), round(x * wide + wide * 0.88, 4)], "anchor": f"y{at}", "gridcolor": GRID,
            "nticks": 3, "zeroline": False,
        }  # fmt: skip
        layout[f"yaxis{at}"] = {
            "domain": [round(y * high, 4), round(y * high + high * 0.72, 4)], "anchor": f"x{at}",
            "range": [0, largest * 1.08], "gridcolor": GRID, "nticks": 3, "zeroline": False,
        }  # fmt: skip
        layout["annotations"].append(
            {"x": x * wide, "y": y * high + high * 0.74, "xref": "paper", "yref": "paper", "text": literal(row.title),
             "showarrow": False, "xanchor": "left", "yanchor": "bottom"}
        )  # fmt: skip
        layout["shapes"] += [_line(step, f"x{at}", f"y{at} domain") for step in changes]
    return {"data": data, "layout": layout}


def _line(step: int, xref: str = "x", yref: str = "paper") -> dict[str, Any]:
    ends = {"x0": step, "x1": step, "y0": 0, "y1": 1, "xref": xref, "yref": yref}
    return {"type": "line", **ends, "line": {"width": 1.5, "dash": "dot", "color": MARK}}


def _markers(kind: str, stalls: Sequence[Stall], top: float | None) -> dict[str, Any]:
    heights = [s.value if top is None else min(s.value, 0.985 * top) for s in stalls]
    return {
        "type": "scatter", "mode": "markers", "x": [s.step for s in stalls], "y": [_digits(h) for h in heights],
        "name": kind.replace("_", " "), "marker": {"symbol": _KINDS[kind], "size": 7, "color": STALL},
        "customdata": [s.hover for s in stalls], "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
