"""The verdict on one terminal screen: headline, the three facts behind it, five symptoms, the next step, trust.

Plain text first: it reads the same without colour, in a pipe and in a log. Colour only repeats what words say.
At 80 columns it needs at most 23 lines; longer sentences are cut with an ellipsis, the report has all of them.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from diagnose.findings import SYMPTOMS, Diagnosis, Symptom
from diagnose.report._parts import part
from diagnose.report._text import clean, shorten
from diagnose.report._verdict import cost, loss, measured, needed, verdict

if TYPE_CHECKING:
    from rich.console import Console

LABEL_COLUMNS = 9
WIDEST = 100
SCREEN_LINES = 23
_TONES = {"found": "bold red", "clear": "bold green", "unknown": "bold yellow"}
_GRAVE = ("several_runs", "merged_processes", "gpu_events_missing", "unit_mismatch", "truncated", "damaged_compression")
"""Problems that change what the verdict is about: they come first in the one line there is."""
_SEVERITIES = {"critical": "bold red", "warning": "yellow", "info": "dim"}


def render(diagnosis: Diagnosis, console: Console, *, report: Path | None = None, verbose: bool = False) -> None:
    """Print the summary. `report`: where the page was written; `verbose`: every finding and skipped rule follows."""
    width = max(30, min(console.width, WIDEST))
    colour = console.is_terminal and not console.no_color and not console.legacy_windows
    bar = _bar(diagnosis, width) if colour else None
    lines: list[Text] = []
    # The cause and the change say most; what the unknown symptoms need is told in full on the page.
    for cause_lines, symptom_lines, change_lines in ((4, 2, 4), (4, 1, 4), (3, 1, 3), (2, 1, 2), (1, 1, 1)):
        lines = [*_top(diagnosis, width, bar, cause_lines), *_symptoms(diagnosis, width, symptom_lines), Text()]
        lines += _bottom(diagnosis, width, change_lines)
        if len(lines) + (report is not None) <= SCREEN_LINES:
            break
    if report is not None:
        lines += _path("Report", str(report))
    if verbose:
        lines += [*_findings(diagnosis, width), *_skipped(diagnosis, width)]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _top(diagnosis: Diagnosis, width: int, bar: Text | None, cause_lines: int) -> list[Text]:
    answer = verdict(diagnosis)
    headline = f"{answer.headline}: {answer.cost}" if answer.cost else answer.headline
    headline += f", {answer.worth}" if answer.worth else ""
    lines = [*_wrapped(headline, width, 3, _TONES[answer.tone]), Text(), *([bar] if bar else [])]
    for label, text in answer.facts:
        lines += _labelled(label, text, width, cause_lines if label == "Cause" else 2)
    return [*lines, Text()]


def _bottom(diagnosis: Diagnosis, width: int, change_lines: int) -> list[Text]:
    answer = verdict(diagnosis)
    lines = []
    if answer.change:
        label = "Change" if answer.tone == "found" else "Collect"
        lines += _labelled(label, answer.change, width, change_lines, "bold" if answer.tone == "found" else "")
    return lines + _labelled("Quality", _quality(diagnosis), width, 1)


def _symptoms(diagnosis: Diagnosis, width: int, most_lines: int) -> list[Text]:
    lines = []
    longest = max(map(len, SYMPTOMS.values()))
    room = width - LABEL_COLUMNS - longest - 2
    for symptom in diagnosis.symptoms:
        question = SYMPTOMS.get(symptom.symptom, symptom.symptom)
        answers = _wrapped(_answer(diagnosis, symptom), room, most_lines) if room >= 20 else []
        head = Text(f"{symptom.status:<{LABEL_COLUMNS}}", style=_TONES.get(symptom.status, ""))
        head.append(_cut(question, width - LABEL_COLUMNS), style="not bold default")
        if answers and answers[0].plain:
            head.append(" " * (longest - len(question) + 2)).append(answers[0].plain, style="not bold default")
        lines.append(head)
        lines += [Text(" " * (width - room)) + more for more in answers[1:]]
    return lines


def _answer(diagnosis: Diagnosis, symptom: Symptom) -> str:
    return "" if symptom.status == "clear" else cost(diagnosis, symptom) or needed(symptom)


def _quality(diagnosis: Diagnosis) -> str:
    counts: dict[str, int] = {}
    for item in diagnosis.inputs:
        counts[item["status"]] = counts.get(item["status"], 0) + 1
    total = len(diagnosis.inputs)
    states = ", ".join(status if n == total else f"{n} {status}" for status, n in counts.items())
    text = f"{total} input{'s' * (total != 1)}: {states}"
    met: dict[str, int] = {}
    for row in diagnosis.quality:
        met[row["problem"]] = met.get(row["problem"], 0) + (row.get("count") or 1)
    ordered = sorted(met.items(), key=lambda item: item[0] not in _GRAVE)
    listed = [
        f"only 1 of {n} runs is analysed"
        if problem == "several_runs"
        else f"{clean(problem).replace('_', ' ')} ×{n:,}"
        if n > 1
        else clean(problem).replace("_", " ")
        for problem, n in ordered
    ]
    return "; ".join([text, *([", ".join(listed)] if listed else [])])


def _findings(diagnosis: Diagnosis, width: int) -> list[Text]:
    lines = [Text(), Text("Findings", style="bold")] if diagnosis.findings else []
    for finding in diagnosis.findings:
        head = Text(f"{finding.severity:<{LABEL_COLUMNS}}", style=_SEVERITIES.get(finding.severity, ""))
        head.append(clean(finding.title) + f" [{finding.rule}]" + (f": {lost}" if (lost := loss(finding)) else ""))
        lines += [head, *_labelled("", finding.summary, width, 6), *_labelled("", f"Change: {finding.fix}", width, 8)]
    return lines


def _skipped(diagnosis: Diagnosis, width: int) -> list[Text]:
    left = [o for o in diagnosis.outcomes if o.status in ("skipped", "failed")]
    lines = [Text(), Text("Rules that could not run", style="bold")] if left else []
    for outcome in left:
        lines += _labelled(outcome.status, f"{outcome.rule}: {outcome.reason}", width, 4)
    return lines


def _bar(diagnosis: Diagnosis, width: int) -> Text | None:
    """The step as one coloured line, only where colour can be seen; its words stand in the facts below it."""
    parts, _ = measured(diagnosis)
    total = sum(p["dur_ns"] for p in parts)
    if not total:
        return None
    bar, used, seen_ns = Text(), 0, 0
    for p in parts:
        seen_ns += p["dur_ns"]
        end = round(width * seen_ns / total)
        bar.append(" " * (end - used), style=f"on {part(p['part']).colour}")
        used = end
    return bar


def _labelled(label: str, text: str, width: int, most_lines: int, style: str = "") -> list[Text]:
    lines = _wrapped(text, width - LABEL_COLUMNS, most_lines, style)
    for i, line in enumerate(lines):
        head = Text(f"{label if i == 0 else '':<{LABEL_COLUMNS}}", style="dim")
        lines[i] = head + line
    return lines


def _path(label: str, path: str) -> list[Text]:
    """Never wrapped or cut, so that it can be copied."""
    return [Text(f"{label:<{LABEL_COLUMNS}}", style="dim") + Text(clean(path), style="underline")]


def _wrapped(text: str, width: int, most_lines: int, style: str = "") -> list[Text]:
    words = (shorten(word, max(12, width - 6)) for word in clean(text).split(" "))
    lines = textwrap.wrap(" ".join(words), width, max_lines=most_lines, placeholder=" …") or [""]
    return [Text(line, style=style) for line in lines]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + "…"
