"""Questions that tests put to a Diagnosis, in the words of the tests; answered from its tables and its JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import diagnose
from diagnose.schema import COMM_PARTS, IDLE_CAUSES

CASES = Path(__file__).parent / "cases"


def corpus_folder() -> Path:
    """Where public recordings lie: $DIAGNOSE_CORPUS, else ../shared/corpus beside the checkout."""
    default = Path(__file__).parents[2] / "shared" / "corpus"
    return Path(os.environ.get("DIAGNOSE_CORPUS", default))


def run(*paths: Path, job: Path | None = None, **options: Any) -> Any:
    """The diagnosis of `paths`, with its invariants checked: exact partitions and valid JSON."""
    diagnosis = diagnose.run([str(p) for p in paths], job=None if job is None else str(job), **options)
    partitions_are_exact(diagnosis)
    json.loads(diagnosis.to_json())
    return diagnosis


def partitions_are_exact(diagnosis: Any) -> None:
    """The parts of every (rank, step) sum to the step to the nanosecond, and no part is negative."""
    parts: Counter[tuple[int, int]] = Counter()
    for row in rows(diagnosis, "step_time"):
        assert row["dur_ns"] >= 0, row
        parts[row["rank"], row["step"]] += row["dur_ns"]
    lengths = {(row["rank"], row["step"]): row["dur_ns"] for row in rows(diagnosis, "steps")}
    assert {k: v for k, v in parts.items() if v} == {k: v for k, v in lengths.items() if v and k in parts}
    windows: Counter[int] = Counter()
    for row in rows(diagnosis, "window_time"):
        windows[row["rank"]] += row["dur_ns"]
    assert all(length >= 0 for length in windows.values())


def table(diagnosis: Any, name: str, /) -> pa.Table:
    """A table of the diagnosis with dictionary columns decoded; an absent one is empty."""
    found = diagnosis.tables.get(name)
    if found is None:
        return pa.table({})
    return pa.table(
        {
            column: found[column].cast(pa.string())
            if pa.types.is_dictionary(found.schema.field(column).type)
            else found[column]
            for column in found.schema.names
        }
    )


def rows(diagnosis: Any, table_name: str, /, **equals: Any) -> list[dict[str, Any]]:
    """Rows of a table whose columns equal the given values."""
    return [row for row in table(diagnosis, table_name).to_pylist() if all(row[k] == v for k, v in equals.items())]


def event_names(diagnosis: Any) -> list[str]:
    """Names of all events."""
    return table(diagnosis, "events")["name"].to_pylist()


def events_count(diagnosis: Any) -> int:
    """Events read over all traces."""
    return sum(row["events_count"] or 0 for row in rows(diagnosis, "files", kind="kineto"))


def ranks(diagnosis: Any) -> set[int]:
    """Ranks of the usable files."""
    return {row["rank"] for row in rows(diagnosis, "files") if row["status"] != "unusable" and row["kind"] == "kineto"}


def problems(diagnosis: Any) -> Counter[str]:
    """Quality problems with their counts."""
    found: Counter[str] = Counter()
    for row in diagnosis.quality:
        found[row["problem"]] += row["count"] or 0
    return found


def parts(diagnosis: Any, step: int | None = None, rank: int | None = None) -> Counter[str]:
    """Part -> ns in one step (None: the window); `comm` and `all_idle` are the sums over their parts."""
    name, wanted = ("window_time", {}) if step is None else ("step_time", {"step": step})
    if rank is not None:
        wanted["rank"] = rank
    found: Counter[str] = Counter()
    for row in rows(diagnosis, name, **wanted):
        found[row["part"]] += row["dur_ns"]
        if row["part"] in COMM_PARTS:
            found["comm"] += row["dur_ns"]
        if row["part"] in IDLE_CAUSES:
            found["all_idle"] += row["dur_ns"]
    return found


def total(diagnosis: Any, table_name: str, column: str, /, **equals: Any) -> int:
    """Sum of a column over the rows that match."""
    return sum(row[column] or 0 for row in rows(diagnosis, table_name, **equals))


def found(diagnosis: Any, severity: tuple[str, ...] = ("warning", "critical")) -> list[str]:
    """Rule ids of the findings at these severities, dearest first."""
    return [f.rule for f in diagnosis.findings if f.severity in severity]


def finding(diagnosis: Any, rule: str) -> Any:
    """The first finding of a rule."""
    hits = [f for f in diagnosis.findings if f.rule == rule]
    assert hits, f"{rule} not found; found {[f.rule for f in diagnosis.findings]}; {outcome(diagnosis, rule)}"
    return hits[0]


def outcome(diagnosis: Any, rule: str) -> str:
    """`status: reason` of a rule."""
    return "; ".join(f"{o.status}: {o.reason}" for o in diagnosis.outcomes if o.rule == rule) or "no such rule"


def symptom(diagnosis: Any, name: str) -> Any:
    """The answer to one of the five symptoms."""
    return next(s for s in diagnosis.symptoms if s.symptom == name)


def words(thing: Any) -> str:
    """Everything a finding says, as one text."""
    return " ".join(map(str, (thing.title, thing.summary, thing.evidence, thing.why, thing.fix)))
