"""Figures that compare ranks: heat maps of waiting and of bytes, bandwidth against size. Plain plotly dicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from diagnose.report._figures import axis_unit
from diagnose.report._text import plotly as literal
from diagnose.units import show

_SYMBOLS = ("circle", "diamond-open", "square-open", "x-thin-open", "triangle-up-open")
"""Points of several operations often lie on each other."""
_SCALE = [[0.0, "rgba(125,135,150,0.10)"], [0.25, "#f3c969"], [0.6, "#e07b39"], [1.0, "#a3263a"]]


def heat(places: Sequence[str], calls: Sequence[str], waits_ns: Sequence[Sequence[int | None]]) -> dict[str, Any]:
    """Rank by call: `waits_ns[rank][call]`; None where the rank has no part in the call."""
    most_ns = max((w for row in waits_ns for w in row if w is not None), default=0)
    unit_ns, unit = axis_unit(most_ns)
    hover = [
        [
            "" if wait is None else f"{literal(place)}<br>{literal(call)}<br>waits {show('_ns', wait)}"
            for call, wait in zip(calls, row, strict=True)
        ]
        for place, row in zip(places, waits_ns, strict=True)
    ]
    cells = {
        "type": "heatmap",
        "x": list(range(1, len(calls) + 1)),
        "y": list(range(len(places))),
        "z": [[None if w is None else w / unit_ns for w in row] for row in waits_ns],
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": False,
        "colorscale": _SCALE,
        "zmin": 0,
        "zmax": max(most_ns, 1) / unit_ns,
        "xgap": 1 if len(calls) <= 60 else 0,
        "ygap": 1,
        "colorbar": {"title": {"text": f"wait, {unit}"}, "thickness": 12},
    }
    layout: dict[str, Any] = {
        "showlegend": False,
        "dragmode": False,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 40},
        "hoverlabel": {"align": "left", "namelength": -1},
        "xaxis": {"title": {"text": "shared calls in order of time"}, "showgrid": False, "zeroline": False},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
            "tickvals": list(range(len(places))),
            "ticktext": [literal(p, 24) for p in places],
        },
    }
    return {"data": [cells], "layout": layout}


def matrix(places: Sequence[str], size_bytes: Sequence[Sequence[int | None]]) -> dict[str, Any]:
    """Sender by receiver: `size_bytes[sender][receiver]`; None where it is unknown."""
    most = max((v for row in size_bytes for v in row if v is not None), default=0)
    power = min(max(most.bit_length() - 1, 0) // 10, 4)
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    hover = [
        [
            "" if size is None else f"{literal(sender)} to {literal(receiver)}<br>{show('size_bytes', size)}"
            for receiver, size in zip(places, row, strict=True)
        ]
        for sender, row in zip(places, size_bytes, strict=True)
    ]
    cells = {
        "type": "heatmap",
        "x": list(range(len(places))),
        "y": list(range(len(places))),
        "z": [[None if v is None else v / (1 << (10 * power)) for v in row] for row in size_bytes],
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": False,
        "colorscale": _SCALE,
        "zmin": 0,
        "zmax": max(most, 1) / (1 << (10 * power)),  # without it plotly takes no note of zmin
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"title": {"text": unit}, "thickness": 12},
    }
    ticks = {"tickvals": list(range(len(places))), "ticktext": [literal(p, 24) for p in places]}
    axis = {"showgrid": False, "zeroline": False, "automargin": True, **ticks}
    return {
        "data": [cells],
        "layout": {
            "showlegend": False,
            "dragmode": False,
            "margin": {"l": 8, "r": 8, "t": 8, "b": 40},
            "hoverlabel": {"align": "left", "namelength": -1},
            "xaxis": {**axis, "title": {"text": "to"}},
            "yaxis": {**axis, "autorange": "reversed", "title": {"text": "from"}},
        },
    }


def against_size(
    measured: Sequence[tuple[str, int, float, str]], expected: Sequence[tuple[str, int, float]]
) -> dict[str, Any]:
    """Bus bandwidth over message size, both logarithmic. measured: (operation, bytes, bytes/s, hover text);
    expected: (operation, bytes, bytes/s)."""
    data: list[dict[str, Any]] = []
    for place, op in enumerate(dict.fromkeys(m[0] for m in measured)):
        own = [m for m in measured if m[0] == op]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": literal(op),
                "x": [m[1] for m in own],
                "y": [m[2] / 1e9 for m in own],
                "customdata": [m[3] for m in own],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"size": 10, "symbol": _SYMBOLS[place % len(_SYMBOLS)]},
            }
        )
        line = sorted((e[1], e[2] / 1e9) for e in expected if e[0] == op)
        if line:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers" if len(line) == 1 else "lines",
                    "name": f"{literal(op)}, expected",
                    "x": [x for x, _ in line],
                    "y": [y for _, y in line],
                    "line": {"dash": "dot"},
                    "hoverinfo": "skip",
                    "marker": {"symbol": "line-ew-open", "size": 14},
                }
            )
    legend = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"}
    return {
        "data": data,
        "layout": {
            "showlegend": True,
            "legend": legend,
            "dragmode": False,
            "margin": {"l": 8, "r": 12, "t": 8, "b": 40},
            "hoverlabel": {"align": "left", "namelength": -1},
            "xaxis": {"type": "log", "title": {"text": "message size"}, **_sizes([*measured, *expected])},
            "yaxis": {
                "type": "log",
                "title": {"text": "bus bandwidth, GB/s"},
                "automargin": True,
                **_rates([*measured, *expected]),
            },
        },
    }


def _sizes(points: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Range and ticks of sizes, in powers of 8: plotly's own `1B` would be a billion bytes."""
    low, high = min((p[1] for p in points), default=1), max((p[1] for p in points), default=1)
    steps = [1 << n for n in range(0, 63, 3) if low / 8 <= 1 << n <= high * 8]
    return {
        "range": [math.log10(low / 3), math.log10(high * 3)],
        "tickvals": steps,
        "ticktext": [show("size_bytes", s).replace(".00", "").replace(".0", "") for s in steps],
    }


def _rates(points: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Range and ticks of GB/s at 1, 2 and 5 of every power of ten."""
    low, high = (f((p[2] / 1e9 for p in points), default=1.0) for f in (min, max))
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in ticks if low / 5 <= tick <= high * 5]
    bounds = [math.log10(low / 2), math.log10(high * 2)]
    return {"range": bounds, "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
