"""step-change: the job's step time is no longer what it was."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, level, slowdown, trend


def job(**changes: object) -> Tables:
    causes = [slowdown("unknown", ranks=None, collect="GPU clocks")]
    return tables(spans=JOB_SPANS, trends=[trend(shape="step") | changes], slowdowns=causes)


def fires() -> Tables:
    return job()


def test_fires_with_what_to_collect() -> None:
    found = finding("step-change", fires())

    assert (found.lost_ns, found.symptom, found.evidence["from_step"]) == (40 * MS, "drifting_throughput", 600)
    assert "10.0 %" in found.summary and "collect GPU clocks" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("step-change", fires(), min_change_ratio=0.1)


def test_quiet_on_a_level_run_that_became_faster_or_changed_in_another_way() -> None:
    quiet("step-change", job(**level()))
    quiet("step-change", job(change_ratio=-0.1, late=800.0 * MS))
    quiet("step-change", job(shape="drift"))


def test_a_level_run_of_less_than_a_thousand_steps_settles_nothing() -> None:
    assert outcome("step-change", job(**level(covered_count=999))).status == "skipped"
    assert outcome("step-change", job(**level(covered_count=1000))).status == "clear"
    assert "999 steps" in outcome("step-change", job(**level(covered_count=999))).reason
    assert outcome("step-change", job(**level(shape="short", covered_count=5000))).status == "skipped"


def test_a_short_record_that_shows_it_is_a_finding() -> None:
    assert finding("step-change", job(covered_count=100)).lost_ns == 40 * MS


def test_no_seconds_are_claimed_where_only_a_rate_is_known() -> None:
    assert finding("step-change", job(timed=False)).lost_ns == 0
