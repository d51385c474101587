"""throttled-clocks: GPU clocks fell as the step grew."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, of_cause, slowdown


def fires() -> Tables:
    return of_cause("clocks")


def test_fires() -> None:
    found = finding("throttled-clocks", fires())

    assert (found.lost_ns, found.symptom) == (40 * MS, "drifting_throughput")
    assert "rank 3: SM clock from 1,980 MHz to 1,410 MHz" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("throttled-clocks", fires(), min_grown_ratio=0.1, min_explained_ratio=0.5)


def test_quiet_on_another_cause_and_on_none() -> None:
    quiet("throttled-clocks", tables(spans=JOB_SPANS, slowdowns=[slowdown("rank")]))
    quiet("throttled-clocks", tables(spans=JOB_SPANS, slowdowns=[]))
