"""Figures of what-if answers and of busy ranks: labelled bars of gains, a histogram. Plain plotly dicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from diagnose.report._figures import axis_unit
from diagnose.report._parts import PARTS_SHOWN
from diagnose.report._text import plotly as literal
from diagnose.report._text import rank_name
from diagnose.units import ranges, show

MOST_BINS = 24


def gains(names: Sequence[str], gains_ns: Sequence[int], step_ns: int, hover: Sequence[str]) -> dict[str, Any]:
    """One bar per fix: what the step gains, with its share of the step beside it."""
    unit_ns, unit = axis_unit(max(gains_ns, default=0))
    longest = max([*gains_ns, 1]) / unit_ns
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(names))),
        "x": [g / unit_ns for g in gains_ns],
        "text": [f"{show('_ns', g)} · {show('_ratio', g / step_ns)}" for g in gains_ns],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [f"<b>{literal(n)}</b><br>{literal(h, 300)}" for n, h in zip(names, hover, strict=True)],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": PARTS_SHOWN["compute"].colour},
    }
    layout = {
        "showlegend": False,
        "dragmode": False,
        "bargap": 0.3,
        "meta": "labelled",
        "margin": {"l": 8, "r": 8, "t": 8, "b": 40},
        "hoverlabel": {"align": "left", "namelength": -1},
        "xaxis": {"title": {"text": f"{unit} per step"}, "range": [0, longest * 1.45], "zeroline": False},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
            "tickvals": list(range(len(names))),
            "ticktext": [literal(n, 34) for n in names],
        },
    }
    return {"data": [bar], "layout": layout}


def histogram(ranks: Sequence[int], busy_ns: Sequence[int]) -> dict[str, Any]:
    """How many ranks are busy for how long; the hover names them."""
    unit_ns, unit = axis_unit(max(busy_ns, default=0))
    values = np.asarray(busy_ns, float)
    low, high = float(values.min()), float(values.max())
    bins = 1 if high <= low else int(min(MOST_BINS, max(8, 2 * np.sqrt(len(values)))))
    edges = np.linspace(low, high if high > low else low + max(low * 0.01, 1.0), bins + 1)
    place = np.clip(np.searchsorted(edges, values, "right") - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    who = [_named([r for r, b in zip(ranks, place.tolist(), strict=True) if b == n]) for n in range(bins)]
    spans = [f"{show('_ns', int(a))} to {show('_ns', int(b))}" for a, b in pairwise(edges.tolist())]
    bar = {
        "type": "bar",
        "x": ((edges[:-1] + edges[1:]) / 2 / unit_ns).tolist(),
        "y": counts.tolist(),
        "width": float(edges[1] - edges[0]) / unit_ns * 0.96,
        "customdata": [f"{span}<br>{literal(names, 200)}" for span, names in zip(spans, who, strict=True)],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": PARTS_SHOWN["compute"].colour},
    }
    layout = {
        "showlegend": False,
        "dragmode": False,
        "bargap": 0,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 40},
        "hoverlabel": {"align": "left", "namelength": -1},
        "xaxis": {"title": {"text": f"{unit} of a step busy with work"}, "zeroline": False},
        "yaxis": {"title": {"text": "ranks"}, "automargin": True, "rangemode": "tozero", "tickformat": "d"},
    }
    return {"data": [bar], "layout": layout}


def _named(ranks: Sequence[int]) -> str:
    if not ranks:
        return "no rank"
    known = [r for r in ranks if r >= 0]
    if len(known) < len(ranks):
        return ", ".join(rank_name(r) for r in ranks[:12])
    return f"rank{'s' if len(known) > 1 else ''} {ranges(known)}"
