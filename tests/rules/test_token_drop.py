"""token-drop: tokens that find no room."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, outcome, quiet, tables, turns_exactly_at
from tests.rules.moe_rows import LOAD, SETUP, job


def fires() -> Tables:
    worse = {**LOAD, "layer": 2, "dropped_count": 1_600, "drop_ratio": 0.1}
    return job(router_load=[{**LOAD, "dropped_count": 0, "drop_ratio": 0.0}, worse])


def test_fires() -> None:
    found = finding("token-drop", fires())

    assert (found.lost_ns, found.severity) == (0, "warning")
    assert "5.0 % of the assignments (1,600 of 32,000)" in found.summary
    assert "most in layer 2 (10.0 %)" in found.summary and "room for 1.25 times" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("token-drop", fires(), min_drop_ratio=0.05)
    assert finding("token-drop", fires(), critical_drop_ratio=0.05).severity == "warning"
    assert finding("token-drop", fires(), critical_drop_ratio=0.0499).severity == "critical"


def test_dropless_is_never_a_finding() -> None:
    load = {**LOAD, "dropless": True, "dropped_count": None, "drop_ratio": None, "capacity_count": None}
    quiet("token-drop", job(router_load=[load]))
    quiet("token-drop", tables(moe_setup=[{**SETUP, "dropless": True}]))


def test_unknown_drops_are_unknown() -> None:
    load = {**LOAD, "dropless": None, "dropped_count": None, "drop_ratio": None, "capacity_count": None}
    result = outcome("token-drop", job(router_load=[load]))
    assert result.status == "skipped" and "do not tell" in result.reason and "capacity factor" in result.reason


def test_a_job_with_experts_but_no_records_says_what_to_log() -> None:
    result = outcome("token-drop", tables(moe_setup=[SETUP]))
    assert result.status == "skipped" and "settings name 8 experts" in result.reason
    assert "tokens_per_expert" in result.reason


def test_nothing_known_is_unknown() -> None:
    assert outcome("token-drop", tables()).status == "skipped"
