"""The verdict, the step as one bar, the five symptoms and the questions about the layout's dimensions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import SYMPTOMS, Diagnosis, Symptom
from diagnose.report._blocks import Block, Cards, Facts, Headline, Section, Strip, Tag
from diagnose.report._parts import part
from diagnose.report._text import clean, first_sentences
from diagnose.report._verdict import cost, measured, needed, share, verdict
from diagnose.units import UNKNOWN, ranges, show

ORDER = 10


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section:
    """Always there: it also says what cannot be known."""
    answer = verdict(diagnosis)
    headline = Headline(
        answer.tone,
        answer.headline,
        answer.facts,
        answer.cost,
        first_sentences(answer.change, 260 if answer.rule else 600),
        answer.worth,
        f"finding-{answer.rule}" if answer.rule else "",
    )
    blocks: list[Block] = [headline]
    if strip := _strip(diagnosis):
        blocks.append(strip)
    blocks += [Facts(_job(diagnosis)), Cards("Five symptoms", [_card(diagnosis, s) for s in diagnosis.symptoms])]
    if diagnosis.questions:
        blocks.append(Cards("Is a dimension wrong?", [_question(q) for q in diagnosis.questions]))
    return Section("verdict", "Verdict", blocks)


def _strip(diagnosis: Diagnosis) -> Strip | None:
    parts, mark = measured(diagnosis)
    total = sum(p["dur_ns"] for p in parts)
    if not total:
        return None
    segments = [
        (p["part"], part(p["part"]).label, show("_ns", p["dur_ns"]), share(p["dur_ns"], total), p["dur_ns"] / total)
        for p in parts
    ]
    return Strip(f"Where the time went: {mark}, {show('_ns', total)}", segments)


def _job(diagnosis: Diagnosis) -> list[tuple[str, Any]]:
    job, steps = diagnosis.job, diagnosis.step_time
    seen = [r for r in job.get("ranks_seen") or [] if r >= 0]
    unknown = len(job.get("ranks_seen") or []) - len(seen)
    ranks = (ranges(seen) if seen else "") + (f"{' and ' if seen else ''}{unknown} unknown" if unknown else "")
    layout = ", ".join(
        f"{dim} {found['value']}"
        for dim, found in (job.get("layout") or {}).items()
        if isinstance(found, dict) and found.get("value") is not None
    )
    return [
        ("GPU", clean(job.get("gpu") or UNKNOWN)),
        ("Job size", f"{job['world_size']:,} ranks" if job.get("world_size") else UNKNOWN),
        ("Ranks read", ranks or UNKNOWN),
        ("Layout", clean(layout) or UNKNOWN),
        ("Steps", show("steps_count", steps["steps_count"]) if steps.get("steps_count") else "none marked"),
        ("Median step", show("median_ns", steps.get("median_ns"))),
        ("Trace quality", _trust(diagnosis)),
    ]


def _trust(diagnosis: Diagnosis) -> str:
    bad = sum(i["status"] != "ok" for i in diagnosis.inputs)
    kinds = len({row["problem"] for row in diagnosis.quality})
    files = "every file ok" if not bad else f"{bad:,} of {len(diagnosis.inputs):,} files not ok"
    return f"{files}, {kinds} remark{'s' * (kinds != 1)}" if kinds else files


def _card(diagnosis: Diagnosis, symptom: Symptom) -> tuple[Tag, str, str, str]:
    return (
        Tag(symptom.status, symptom.status),
        SYMPTOMS.get(symptom.symptom, symptom.symptom),
        cost(diagnosis, symptom),
        needed(symptom),
    )


def _question(question: dict[str, Any]) -> tuple[Tag, str, str, str]:
    answer = str(question.get("answer") or UNKNOWN)
    behind = ", ".join(question.get("findings") or [])
    figure = question.get("figure")
    text = clean(figure) if figure is not None else ""
    found = f"Findings: {clean(behind)}" if behind else ""
    if text.startswith("needed: "):
        return Tag(answer, answer), clean(question["question"]), "", f"needs {text.removeprefix('needed: ')}"
    return Tag(answer, answer), clean(question["question"]), text, found
