"""link-turned-slow: bus bandwidth falls as the step grows."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("link", sign_early=180.0, sign_late=90.0, ranks=None, part="comm")


def test_fires() -> None:
    found = finding("link-turned-slow", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "from 180 to 90" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("link-turned-slow", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("link-turned-slow", tables(spans=JOB_SPANS, slowdowns=[slowdown("rank")]))
    quiet("link-turned-slow", tables(spans=JOB_SPANS, slowdowns=[]))
