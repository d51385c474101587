"""The longest step, rank by rank: what ran when, on lanes for computing, communication, copies and idle causes."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import Diagnosis
from diagnose.report import _figures, _lanes
from diagnose.report._blocks import Block, Figure, Section, Text
from diagnose.report._text import rank_name
from diagnose.units import show

ORDER = 50
MOST_RANKS = 4
SHAPES_BUDGET = 4000


class Stretch(NamedTuple):
    """An interval of one rank to draw."""

    rank: int
    start_ns: int
    dur_ns: int


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no device work was recorded."""
    what, stretches = _stretches(tables)
    shown = stretches[:MOST_RANKS]
    blocks: list[Block] = []
    for stretch in shown:
        if figure := _figure(tables, stretch, SHAPES_BUDGET // len(shown), shown[0].dur_ns):
            blocks.append(figure)
    if not blocks:
        return None
    lead = f"{what}, {show('_ns', shown[0].dur_ns)} on {rank_name(shown[0].rank)}. Drag to zoom, double-click to reset."
    if len(stretches) > 1:
        blocks.append(
            Text(
                "Each rank is drawn from its own start, all on one scale; ranks are not placed on one clock here.",
                quiet=True,
            )
        )
    if len(stretches) > len(shown):
        blocks.append(Text(f"Shown: the {MOST_RANKS} longest of {len(stretches)} ranks.", quiet=True))
    return Section("timeline", "Timeline", blocks, lead)


def _stretches(tables: dict[str, pa.Table]) -> tuple[str, list[Stretch]]:
    steps = tables.get("steps")
    if steps is not None:
        steps = steps.filter(pc.is_valid(steps["dur_ns"]))  # null: the recording lacks the device side
    if steps is not None and steps.num_rows:
        whole = steps.filter(pc.fill_null(steps["complete"], False))
        rows = (whole if whole.num_rows else steps).select(["rank", "step", "ts_ns", "dur_ns"]).to_pylist()
        longest = max(rows, key=lambda r: r["dur_ns"])
        same = sorted((r for r in rows if r["step"] == longest["step"]), key=lambda r: -r["dur_ns"])
        return f"Step {longest['step']}, the longest", [Stretch(r["rank"], r["ts_ns"], r["dur_ns"]) for r in same]
    kernels = tables.get("kernels")
    if kernels is None or not kernels.num_rows:
        return "", []
    ends = pa.table(
        {"rank": kernels["rank"], "start": kernels["ts_ns"], "end": pc.add(kernels["ts_ns"], kernels["dur_ns"])}
    )
    rows = ends.group_by("rank").aggregate([("start", "min"), ("end", "max")]).to_pylist()
    found = [Stretch(r["rank"], r["start_min"], r["end_max"] - r["start_min"]) for r in rows]
    return "The whole recording", sorted(found, key=lambda s: -s.dur_ns)


def _figure(tables: dict[str, pa.Table], stretch: Stretch, budget: int, axis_ns: int) -> Figure | None:
    if stretch.dur_ns <= 0:
        return None
    drawing = _lanes.draw(tables, stretch.rank, stretch.start_ns, stretch.dur_ns, budget)
    if not drawing.shapes:
        return None
    note = ""
    if drawing.merged_count:
        note = (
            f"{drawing.merged_count:,} of {drawing.pieces_count:,} pieces, "
            f"shorter than {show('_ns', drawing.pixel_ns)}, are drawn merged; a merged shape says how many it holds."
        )
    spec = _figures.timeline(drawing.lanes, drawing.shapes, axis_ns)
    alt = f"Timeline of {rank_name(stretch.rank)} over {show('_ns', stretch.dur_ns)}: lanes {', '.join(drawing.lanes)}."
    return Figure(rank_name(stretch.rank).capitalize(), spec, 100 + 40 * len(drawing.lanes), alt, note)
