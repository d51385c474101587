"""What was checked: rules that ran clear, and rules that could not run, with what they miss."""

from __future__ import annotations

import pyarrow as pa

from diagnose.findings import SYMPTOMS, Diagnosis
from diagnose.report._blocks import Block, Grid, Name, Section, Tag, Text, columns
from diagnose.report._text import clean

ORDER = 100
_ORDER = {"failed": 0, "skipped": 1, "found": 2, "clear": 3}


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no rule was loaded."""
    outcomes = sorted(diagnosis.outcomes, key=lambda o: (_ORDER.get(o.status, 0), o.rule))
    if not outcomes:
        return None
    counts = {status: sum(o.status == status for o in outcomes) for status in ("found", "clear", "skipped", "failed")}
    lead = ", ".join(f"{n} {status}" for status, n in counts.items() if n) + "."
    listed = [o for o in outcomes if o.status in ("failed", "skipped")]
    blocks: list[Block] = []
    if listed:
        rows = [
            [Name(clean(o.rule)), Tag(o.status, o.status), SYMPTOMS.get(o.symptom, clean(o.symptom)), clean(o.reason)]
            for o in listed
        ]
        blocks.append(
            Grid(
                "Could not run",
                columns("Rule", "Status", "Symptom", "What is missing"),
                rows,
            )
        )
    clear = [o.rule for o in outcomes if o.status == "clear"]
    if clear:
        blocks.append(Text(f"Ran clear: {clean(', '.join(clear))}.", quiet=True))
    return Section("rules", "Rules", blocks, f"{len(outcomes)} rules: {lead}")
