"""imbalance-growth: experts become unevenly loaded."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("imbalance", sign_early=1.1, sign_late=2.2, ranks=None, part="comm")


def test_fires() -> None:
    found = finding("imbalance-growth", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "from 1.10 to 2.20" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("imbalance-growth", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("imbalance-growth", tables(spans=JOB_SPANS, slowdowns=[slowdown("link")]))
    quiet("imbalance-growth", tables(spans=JOB_SPANS, slowdowns=[]))
