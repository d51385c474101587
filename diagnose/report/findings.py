"""Every finding, the costliest first: what was seen, the evidence, why it costs, what to change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import SYMPTOMS, Diagnosis, Finding
from diagnose.report._blocks import Block, Offence, Section, Tag, Text
from diagnose.report._hang import foremost
from diagnose.report._text import clean, name, words
from diagnose.report._verdict import loss
from diagnose.units import ranges, show

ORDER = 30
MOST_FINDINGS = 60


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section:
    """Always there: no finding is an answer too."""
    found = foremost(diagnosis.findings)
    if not found:
        return Section("findings", "Findings", [], "No rule found anything. Rules that could not run are listed below.")
    seen: dict[str, int] = {}
    blocks: list[Block] = []
    for finding in found[:MOST_FINDINGS]:
        seen[finding.rule] = seen.get(finding.rule, 0) + 1
        anchor = f"finding-{finding.rule}" + (f"-{seen[finding.rule]}" if seen[finding.rule] > 1 else "")
        blocks.append(_offence(finding, anchor))
    if len(found) > MOST_FINDINGS:
        blocks.append(Text(f"{len(found) - MOST_FINDINGS:,} smaller findings are in diagnosis.json.", quiet=True))
    blocks.append(Text("Losses of different findings overlap; they do not add up.", quiet=True))
    lead = f"{len(found):,} findings, the costliest first." if len(found) > 1 else "1 finding."
    return Section("findings", "Findings", blocks, lead)


def _offence(finding: Finding, anchor: str) -> Offence:
    kind = "simulated" if finding.lost_kind == "simulated" else "upper bound"
    facts: list[tuple[str, Any]] = [
        ("Symptom", SYMPTOMS.get(finding.symptom, finding.symptom)),
        ("Confidence", show("confidence_ratio", finding.confidence_ratio)),
    ]
    if finding.lost_ns or finding.lost_bytes:
        facts.append(("Loss is", kind))
    for label, numbers in (("Ranks", finding.ranks), ("Steps", finding.steps)):
        if numbers:
            facts.append((label, _numbers(numbers)))
    if finding.hosts:
        facts.append(("Hosts", clean(", ".join(finding.hosts))))
    evidence = [(words(key), _value(key, value)) for key, value in finding.evidence.items()]
    lost = loss(finding) + (" a step" if finding.lost_ns else "")
    return Offence(
        anchor,
        finding.rule,
        Tag(finding.severity, finding.severity),
        clean(finding.title),
        lost,
        clean(finding.summary),
        clean(finding.why),
        clean(finding.fix),
        facts,
        evidence,
    )


def _value(key: str, value: Any) -> Any:
    text = show(key, value)
    return name(text, 160) if isinstance(value, (str, list, tuple)) else text


def _numbers(numbers: tuple[int, ...]) -> str:
    known = [n for n in numbers if n >= 0]
    return ", ".join([*([ranges(known)] if known else []), *(["unknown"] if len(known) < len(numbers) else [])])
