"""Layouts that would be better than the current one: memory, step, both together, what each trades, what to paste.

Predictions of the planner, calibrated with this run where it could be; the section first says how well the model gives
the run itself. Only the words of `plan` in the diagnosis: nothing is predicted here.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import Block, Facts, Figure, Grid, Paste, Section, Text, columns
from diagnose.report._figures import height
from diagnose.report._memory_figures import bars, order
from diagnose.report._plan_figures import Point, pareto, steps
from diagnose.report._text import clean, name
from diagnose.units import show

ORDER = 47
NOTHING_TO_SAY = "the model is not known"
"""Reason of a run whose user described no job: no section."""
VERDICTS = {True: "fits", False: "does not fit", None: "a close call"}
MOST_REFUSED, MOST_NEAR = 6, 3
MISSED = "cache, fragmentation, transients"
"""What formulas do not give: an expectation, not a recorded part, so it has its own name and grey."""


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where nobody described the job; one sentence where the description does not suffice."""
    plan = diagnosis.plan
    if plan is None:
        reason = clean(diagnosis.plan_reason)
        said = reason and not reason.startswith(NOTHING_TO_SAY)
        return Section("plan", "Better layouts", [], f"No layouts were compared: {reason}.") if said else None
    return of_plan(plan)


def of_plan(plan: dict[str, Any]) -> Section:
    """The section of a plan, whether it came with a diagnosis or not."""
    shown = [plan["current"], *(c["prediction"] for c in _others(plan))]
    blocks: list[Block] = [_reproduced(plan), *_figures(plan, shown)]
    if plan["candidates"]:
        blocks.append(_candidates("Fastest layouts that are legal and fit", plan["candidates"]))
    if near := [c for c in plan["one_change"] if c["changed"]]:
        blocks.append(_candidates("One change away from the current layout", near[:MOST_NEAR]))
    blocks += [_checks(plan), *_paste(plan), *_refused(plan), _facts(plan)]
    return Section("plan", "Better layouts", blocks, _lead(plan))


def _others(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Candidates other than the layout that ran."""
    return [c for c in plan["candidates"] if c["changed"]]


def _label(figures: dict[str, Any], current: bool) -> str:
    return f"now: {figures['name']}" if current else str(figures["name"])


def _lead(plan: dict[str, Any]) -> str:
    if plan["problems"]:
        return f"The layout as described cannot run: {clean(plan['problems'][0])}."
    others = _others(plan)
    if not others:
        return "No other layout is legal and fits at this batch and these GPUs."
    best = others[0]
    low, high = best["speedup_low_ratio"], best["speedup_high_ratio"]
    if low <= 1:
        return (
            f"No layout is clearly faster than the current one: the best other, {best['prediction']['name']}, is "
            f"expected at {best['speedup_ratio']:.2f} times its speed ({low:.2f} to {high:.2f})."
        )
    return (
        f"{best['prediction']['name']} should run {best['speedup_ratio']:.2f} times as fast ({low:.2f} to {high:.2f}), "
        f"{show('_ns', best['prediction']['step_ns'])} instead of {show('_ns', plan['current']['step_ns'])} a step, at "
        "the same batch and GPUs."
    )


def _reproduced(plan: dict[str, Any]) -> Text | Facts:
    calibration = plan["calibration"]
    if calibration is None:
        return Text(
            "Not calibrated: neither a step time nor a memory peak was measured, so times may be off by a third; "
            "ratios between layouts are better.",
        )
    items = []
    for row in calibration["reproduced"]:
        time = row["quantity"] == "step_s"
        measured, modelled = (
            show("_ns", row[k] * 1e9) if time else show("_bytes", row[k]) for k in ("measured", "modelled")
        )
        what = "Step" if time else "Peak memory"
        items.append((f"{what}: measured / calibrated model", f"{measured} / {modelled} ({row['error_ratio']:+.1%})"))
    if "uncalibrated_step_ns" in plan and any(r["quantity"] == "step_s" for r in calibration["reproduced"]):
        items.append(("Step: before calibration", show("_ns", plan["uncalibrated_step_ns"])))
    if calibration.get("outside_ns"):
        items.append(("In every layout: late ranks, input, collection", show("_ns", calibration["outside_ns"])))
    items += [("Note", clean(note)) for note in calibration["notes"]]
    return Facts(items)


def _figures(plan: dict[str, Any], shown: list[dict[str, Any]]) -> list[Block]:
    names = [_label(figures, i == 0) for i, figures in enumerate(shown)]
    parts = [{part["part"]: part["dur_ns"] for part in figures["parts"]} for figures in shown]
    sizes = {
        key: [figures["memory"][f"{key}_bytes"] for figures in shown]
        for key in order({part.removesuffix("_bytes"): 0 for part in shown[0]["memory"]})
    }
    sizes = {MISSED if key == "fragmentation" else key: values for key, values in sizes.items() if any(values)}
    points = [
        Point(n, f["step_ns"], f["memory_total_bytes"], f["memory_low_bytes"], f["memory_high_bytes"])
        for n, f in zip(names, shown, strict=True)
    ]
    limit = plan.get("gpu_memory_bytes")
    tall = height(len(shown), legend=True)
    said = "; ".join(f"{p.name}: {show('_ns', p.step_ns)}, {show('_bytes', p.memory_bytes)}" for p in points)
    return [
        Figure("Step by part", steps(names, parts), tall, f"Predicted step of each layout. {said}"),
        Figure(
            "Peak memory of the fullest GPU by part",
            bars(names, sizes, limit),
            tall,
            f"Predicted memory of each layout under the device's {show('_bytes', limit)}. {said}",
        ),
        Figure(
            "Time against memory",
            pareto(points[0], points[1:], limit),
            340,
            f"Step and peak memory of each layout. {said}",
            "Whiskers: where the peak should lie. Left and low is better.",
        ),
    ]


def _candidates(title: str, candidates: list[dict[str, Any]]) -> Grid:
    diagnosed = any("answers" in c for c in candidates)
    answers = ["Answers"] if diagnosed else []
    heads = columns("Layout", ">Speed-up", ">Range", ">Step", ">Memory", "Because", "Trades", *answers, "Wrong if")
    rows = [
        [
            name(c["prediction"]["name"] + ("" if c["changed"] else " (now)")),
            f"{c['speedup_ratio']:.2f}x",
            f"{c['speedup_low_ratio']:.2f} to {c['speedup_high_ratio']:.2f}",
            show("_ns", c["prediction"]["step_ns"]),
            f"{show('_bytes', c['prediction']['memory_total_bytes'])}, {VERDICTS[c['prediction']['fits']]}",
            clean(c["why"]),
            clean(c["trades"]),
            *([clean(", ".join(c.get("answers", [])) or "no finding")] if diagnosed else []),
            clean(c["refutation"].removeprefix("wrong if ")),
        ]
        for c in candidates
    ]
    return Grid(title, heads, rows, "Same global batch and GPUs; every figure is a prediction.")


def _checks(plan: dict[str, Any]) -> Grid:
    rows = [[clean(step["question"]), clean(step["answer"])] for step in plan["steps"]]
    notes = "; ".join(map(clean, plan["warnings"]))
    situation = f"{plan['situation']['is'].capitalize()}: {plan['situation']['reach_for']}."
    return Grid("The current layout, step by step", columns("Question", "Answer"), rows, f"{situation} {notes}".strip())


def _paste(plan: dict[str, Any]) -> list[Block]:
    others = _others(plan)
    if not others:
        return []
    best = others[0]
    return [
        Paste(f"{framework}: {best['prediction']['name']}", text) for framework, text in sorted(best["flags"].items())
    ]


def _refused(plan: dict[str, Any]) -> list[Block]:
    rows = [[f"{r['layouts_count']:,}", clean(r["reason"])] for r in plan["refused"][:MOST_REFUSED]]
    more = f"{plan['tried_count']:,} layouts were tried. N stands for a figure that differs from one to the next."
    return [Grid("Layouts that were refused", columns(">Layouts", "Reason"), rows, more)] if rows else []


def _facts(plan: dict[str, Any]) -> Text:
    read = [f"{f['key']} = {f['value']} ({f['source']})" for f in plan.get("facts", []) if f["source"] != "given"]
    given = sum(f["source"] == "given" for f in plan.get("facts", []))
    parts = [f"{given} facts of the job were given"] if given else []
    parts += [f"not given but found: {'; '.join(read)}"] if read else []
    parts += [f"assumed: {'; '.join(plan['current']['assumptions'])}"]
    return Text(clean(". ".join(part[0].upper() + part[1:] for part in parts) + "."), quiet=True)
