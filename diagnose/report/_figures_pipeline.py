"""The pipeline chart: one lane a stage, one bar a piece of work, coloured by phase, its lightness by micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnose.report._figures import axis_unit
from diagnose.units import show

PHASES = {
    "forward": ("forward", 212, 62), "backward": ("backward", 26, 70), "backward_input": ("input gradient", 12, 62),
    "weight": ("weight gradient", 285, 36),
}  # fmt: skip
"""Phase -> name, hue and saturation; in the order of the legend."""
_LIGHTNESS = (38, 50, 62, 72)
"""By micro-batch in turn, so that neighbours differ and numbers can be followed through the stages."""

Piece = tuple[int, str, int, int, int, int | None]
"""(stage, phase, start ns, duration ns, chunk, micro-batch)."""


def chart(stages: Sequence[int], pieces: Sequence[Piece], axis_ns: int, *, labelled: bool) -> dict[str, Any]:
    """Stages from the top over time; micro-batch numbers inside the bars where `labelled`."""
    unit_ns, unit = axis_unit(axis_ns)
    place = {stage: i for i, stage in enumerate(stages)}
    data = []
    for phase, (name, hue, saturation) in PHASES.items():
        mine = [p for p in pieces if p[1] == phase]
        if not mine:
            continue
        numbers = [p[5] for p in mine]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [place[p[0]] for p in mine],
                "x": [round(p[3] / unit_ns, 5) for p in mine],
                "base": [round(p[2] / unit_ns, 5) for p in mine],
                "text": [_number(n) for n in numbers] if labelled else None,
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "customdata": [_hover(name, p) for p in mine],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"color": [_colour(hue, saturation, n) for n in numbers], "line": {"width": 0}},
                "width": 0.8,
            }
        )
    return {"data": data, "layout": _layout(stages, axis_ns / unit_ns, unit)}


def _layout(stages: Sequence[int], longest: float, unit: str) -> dict[str, Any]:
    return {
        "barmode": "overlay",
        "showlegend": True,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        "margin": {"l": 8, "r": 12, "t": 8, "b": 40},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": "zoom",
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "xaxis": {"title": {"text": f"{unit} from the first forward"}, "range": [0, longest], "fixedrange": False},
        "yaxis": {
            "tickvals": list(range(len(stages))),
            "ticktext": [f"stage {s}" for s in stages],
            "range": [len(stages) - 0.4, -0.6],
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
        },
    }


def _colour(hue: int, saturation: int, microbatch: int | None) -> str:
    return f"hsl({hue},{saturation}%,{_LIGHTNESS[(microbatch or 0) % len(_LIGHTNESS)]}%)"


def _number(microbatch: int | None) -> str:
    return "" if microbatch is None else str(microbatch)


def _hover(name: str, piece: Piece) -> str:
    stage, _, start, dur, chunk, microbatch = piece
    of = "of an unknown micro-batch" if microbatch is None else f"of micro-batch {microbatch}"
    part = f", chunk {chunk}" if chunk else ""
    return f"<b>{name} {of}</b><br>stage {stage}{part}<br>{show('_ns', dur)}, from {show('_ns', start)}"
