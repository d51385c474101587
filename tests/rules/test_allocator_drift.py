"""allocator-drift: allocation takes more and more of the step."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("fragmentation", part="alloc")


def test_fires() -> None:
    found = finding("allocator-drift", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "allocation takes 90.0 ms longer" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("allocator-drift", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("allocator-drift", tables(spans=JOB_SPANS, slowdowns=[slowdown("leak")]))
    quiet("allocator-drift", tables(spans=JOB_SPANS, slowdowns=[]))
