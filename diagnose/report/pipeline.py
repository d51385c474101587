"""The pipeline: which stage works when, the same order as it would run evenly, and where its idle time lies.

One typical step is drawn; the tables are means over the analysed steps of the copy that takes longest. Where only
settings tell of a pipeline, the schedule's law stands alone and says that it is no measurement.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Block, Facts, Figure, Grid, Section, Share, Text, columns, known
from diagnose.report._figures_pipeline import Piece, chart
from diagnose.report._text import rank_name
from diagnose.units import show

ORDER = 55
MOST_PIECES = 3000
MOST_LABELLED = 600
MOST_STAGES = 64
SCHEDULES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "zb1p": "zero bubble (ZB-H1)",
    "zb2p": "zero bubble (ZB-H2)", "zbv": "zero bubble (ZB-V)", "dualpipe": "DualPipe", "unknown": "unknown schedule",
}  # fmt: skip
_PARTS = {
    "work_ns": ("work", "of a stage, if all took the same time"),
    "bubble_ns": ("schedule's bubble", "idle by the order of work alone, without transfer, all stages even"),
    "ramp_ns": ("ramp", "before a stage's first and after its last work; it may lie under the neighbouring steps"),
    "imbalance_ns": ("uneven stages", "gained if all stages took equally long"),
    "worker_ns": ("slow workers", "gained if every worker were like its stage's other copies"),
    "variation_ns": ("uneven micro-batches", "gained if a worker's micro-batches took equally long"),
    "transfer_ns": ("transfer and delay", "gained if work began as soon as its input was computed"),
}

Row = dict[str, Any]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where there is no pipeline, or nothing tells of it."""
    bubbles = [row for row in _rows(tables, "bubbles") if row["analysed"] and row["stages_count"] > 1]
    if not bubbles:
        return None
    slowest = _slowest(bubbles)
    first = slowest[0]
    parts = (
        f"{first['stages_count']} stages, {first['microbatches_count']} micro-batches, {SCHEDULES[first['schedule']]}"
    )
    if not first["measured"]:
        law = f"{parts}: {show('_ratio', first['law_ratio'])} of the step idles by the schedule's law."
        note = "Read from the job's settings, not measured: no timeline or trace of the stages was given."
        return Section("pipeline", "Pipeline", [Text(note)], law)
    blocks: list[Block] = [*_charts(_rows(tables, "schedule_work")), _step(slowest), _stages(tables), *_law(slowest)]
    idle = f"{show('_ratio', fmean(row['idle_ratio'] for row in slowest))} of the pipeline's step is idle"
    known_ns = [(row["bubble_ns"], row["dur_ns"]) for row in slowest if row["bubble_ns"] is not None]
    share = sum(bubble for bubble, _ in known_ns) / sum(length for _, length in known_ns) if known_ns else None
    own = "" if share is None else f", {show('_ratio', share)} by the schedule itself"
    return Section("pipeline", "Pipeline", blocks, f"{parts}: {idle}{own}.")


def _rows(tables: dict[str, pa.Table], name: str) -> list[Row]:
    return tables[name].to_pylist() if name in tables else []


def _slowest(rows: list[Row]) -> list[Row]:
    """The copy that takes longest, step by step."""
    best: dict[Any, Row] = {}
    for row in rows:
        if row["step"] not in best or (row["dur_ns"] or 0) > (best[row["step"]]["dur_ns"] or 0):
            best[row["step"]] = row
    return list(best.values())


def _charts(rows: list[Row]) -> list[Figure]:
    """The measured step, and under it the even one on the same scale."""
    if not rows:
        return []
    stages = sorted({row["stage"] for row in rows})[:MOST_STAGES]
    shown = sorted((r for r in rows if r["stage"] in stages), key=lambda r: r["start_ns"])[:MOST_PIECES]
    whole = len(shown) == len(rows)
    end = max(r["start_ns"] + r["dur_ns"] for r in shown)
    pieces = _pieces(shown, "start_ns", "dur_ns")
    height, labelled = 110 + max(18, 34 - len(stages) // 2) * len(stages), len(shown) <= MOST_LABELLED
    note = "" if whole else f"The first {len(shown):,} of {len(rows):,} pieces of work."
    copy = f" of copy {rows[0]['replica']}" if rows[0]["replica"] else ""
    measured = Figure(
        f"Step {rows[0]['step']}{copy}, as measured",
        chart(stages, pieces, end, labelled=labelled),
        height,
        f"Work of {len(stages)} stages over {show('_ns', end)}, by micro-batch and phase.",
        f"{note} Numbers are micro-batches.".strip() if labelled else note,
    )
    if any(row["even_start_ns"] is None for row in shown):
        return [measured]
    length = max(r["even_start_ns"] + r["even_dur_ns"] for r in shown)
    ideal = Figure(
        "The same order in an even pipeline without transfer",
        chart(stages, _pieces(shown, "even_start_ns", "even_dur_ns"), max(end, length), labelled=labelled),
        height,
        f"The same work with equal stages and no transfer, over {show('_ns', length)}.",
        "The schedule's ideal: every stage takes the mean time of each phase. Same time scale as above.",
    )
    return [measured, ideal]


def _pieces(rows: list[Row], start: str, dur: str) -> list[Piece]:
    return [(r["stage"], r["phase"], r[start], r[dur], r["chunk"], r["microbatch"]) for r in rows]


def _step(rows: list[Row]) -> Grid:
    """Parts of the step, mean over the analysed steps."""
    length = fmean(row["dur_ns"] for row in rows)
    full = [{**row, "ramp_ns": _ramp(row)} for row in rows]
    cells = []
    for key, (label, meaning) in _PARTS.items():
        values = [row[key] for row in full if row[key] is not None]
        if not values or (key == "ramp_ns" and round(fmean(values)) == 0):
            continue
        mean = fmean(values)
        cells.append(
            [label, show("_ns", round(mean)), Share(show("_ratio", mean / length), max(0.0, mean / length)), meaning]
        )
    cells.append(
        ["sum", show("_ns", round(length)), Share("100.0 %", None), f"the pipeline's step, mean of {len(rows):,}"]
    )
    return Grid("What the pipeline's step is made of", columns("Part", ">Time", ">Share", "Meaning"), cells)


def _ramp(row: Row) -> int | None:
    return None if row["schedule_ns"] is None else row["schedule_ns"] - row["bubble_ns"]


def _stages(tables: dict[str, pa.Table]) -> Grid:
    """Per stage: its work for a micro-batch against the others, and its idle time by part of the step."""
    idle = [row for row in _rows(tables, "pipeline") if row["analysed"]]
    work = [row for row in _rows(tables, "stages") if row["analysed"]]
    heads = columns("Stage", "Ranks", ">Forward", ">Backward", ">Against the others", ">Warm-up idle", ">Steady idle",
                    ">Cool-down idle", ">Idle")  # fmt: skip
    cells: list[list[Any]] = []
    stages = sorted({row["stage"] for row in idle})
    for stage in stages[:MOST_STAGES]:
        mine = [row for row in idle if row["stage"] == stage]
        own = [row for row in work if row["stage"] == stage]
        length = fmean(row["dur_ns"] for row in mine)
        waits = [fmean(row[f"{part}_idle_ns"] for row in mine) for part in ("warmup", "steady", "cooldown")]
        against = show("_ratio", fmean(row["ratio"] for row in own)) if own else UNKNOWN_NAME
        forward, backward = (_mean(own, f"{phase}_ns") for phase in ("forward", "backward"))
        cells.append(
            [
                f"stage {stage}",
                _ranks([row["rank"] for row in mine]),
                forward,
                backward,
                against,
                *[show("_ns", round(wait)) for wait in waits],
                Share(show("_ratio", sum(waits) / length), sum(waits) / length, "idle"),
            ]
        )
    more = f"{len(stages) - MOST_STAGES:,} more stages." if len(stages) > MOST_STAGES else ""
    return known(Grid("Stages: time for one micro-batch, and idle time of a step", heads, cells, more))


def _mean(rows: list[Row], column: str) -> Any:
    return show("_ns", round(fmean(row[column] for row in rows))) if rows else UNKNOWN_NAME


def _ranks(ranks: list[int]) -> Any:
    found = sorted(set(ranks))
    if len(found) == 1:
        return rank_name(found[0])
    return UNKNOWN_NAME if not found else f"{len(found):,} copies"


def _law(rows: list[Row]) -> list[Block]:
    first = rows[0]
    if first["law_ratio"] is None:
        return [
            Text("The order of work is that of no schedule whose law is known; its bubble is the replay's.", quiet=True)
        ]
    facts = [
        ("Schedule", f"{SCHEDULES[first['schedule']]}, told from the order of work"),
        ("Idle by its law, even stages", show("_ratio", fmean(row["law_ratio"] for row in rows))),
        ("Idle with the stages' own times, no transfer", show("_ratio", fmean(row["stage_law_ratio"] for row in rows))),
        ("Idle as measured", show("_ratio", fmean(row["idle_ratio"] for row in rows))),
    ]
    return [Facts(facts)]
