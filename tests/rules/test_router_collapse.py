"""router-collapse: the router's entropy falls."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("router_collapse", sign_early=4.0, sign_late=1.5, ranks=None, part="comm")


def test_fires() -> None:
    found = finding("router-collapse", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "entropy falls from 4.00 to 1.50" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("router-collapse", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("router-collapse", tables(spans=JOB_SPANS, slowdowns=[slowdown("imbalance")]))
    quiet("router-collapse", tables(spans=JOB_SPANS, slowdowns=[]))
