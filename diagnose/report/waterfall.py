"""The mean step, part by part: an exact partition, so the bars end where the step ends."""

from __future__ import annotations

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report import _figures
from diagnose.report._blocks import Figure, Grid, Section, Share, Swatch, Text, columns
from diagnose.report._parts import part
from diagnose.report._verdict import composition, measured, share
from diagnose.units import show

ORDER = 20


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no device time was recorded."""
    parts, mark = measured(diagnosis)
    total = sum(p["dur_ns"] for p in parts)
    if not total:
        return None
    of_step = bool(diagnosis.step_time.get("parts"))
    figure = Figure(
        f"Waterfall, {mark}",
        _figures.waterfall(parts, "step" if of_step else "recording"),
        _figures.height(len(parts) + 1),
        composition(diagnosis, most=20),
    )
    rows = [
        [
            Swatch(part(p["part"]).label, p["part"]),
            show("_ns", p["dur_ns"]),
            Share(share(p["dur_ns"], total), p["dur_ns"] / total, p["part"]),
            part(p["part"]).meaning,
        ]
        for p in parts
    ]
    grid = Grid(
        "What each part is",
        columns("Part", ">Time", ">Share", "Meaning"),
        [
            *rows,
            ["sum", show("_ns", total), Share("100.0 %", None), "the parts are disjoint: nothing counts twice"],
        ],
    )
    note = "" if of_step else "The recording marks no steps, so this is the whole of it, first to last device event."
    return Section("waterfall", "Step", [figure, *([Text(note)] if note else []), grid], f"{composition(diagnosis)}.")
