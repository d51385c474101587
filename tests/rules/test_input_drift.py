"""input-drift: waiting for data grows."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("input", ranks=None, part="input", slope_ns=500_000.0)


def test_fires() -> None:
    found = finding("input-drift", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "(+500 us a step)" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("input-drift", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("input-drift", tables(spans=JOB_SPANS, slowdowns=[slowdown("rank")]))
    quiet("input-drift", tables(spans=JOB_SPANS, slowdowns=[]))
