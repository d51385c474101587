"""rank-turned-slow: one rank's own work grew, and all wait for it."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("rank")


def test_fires() -> None:
    found = finding("rank-turned-slow", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "rank 3: its own work takes 90.0 ms longer from step 600" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("rank-turned-slow", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("rank-turned-slow", tables(spans=JOB_SPANS, slowdowns=[slowdown("input")]))
    quiet("rank-turned-slow", tables(spans=JOB_SPANS, slowdowns=[]))
