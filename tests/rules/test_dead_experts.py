"""dead-experts: experts that get no tokens."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, turns_exactly_at
from tests.rules.moe_rows import SETUP, expert, job


def fires() -> Tables:
    alive = [expert(n) for n in range(7)]
    return job(experts=[*alive, expert(7, 0.005), *(expert(n, layer=2) for n in range(8))])


def test_fires() -> None:
    found = finding("dead-experts", fires())

    assert found.severity == "warning" and found.evidence["dead_experts"] == [7]
    assert "1 of 16 experts (6.2 %)" in found.summary and "most in layer 1 (1)" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("dead-experts", fires(), max_load_ratio=0.005, min_expected_count=1000)
    assert finding("dead-experts", fires(), critical_dead_ratio=0.0625).severity == "critical"
    assert finding("dead-experts", fires(), critical_dead_ratio=0.063).severity == "warning"


def test_quiet_where_few_tokens_are_expected_or_balance_is_forced() -> None:
    quiet("dead-experts", job(experts=[expert(0, 0.0, late_expected_count=3)]))
    quiet("dead-experts", job(experts=[expert(0, 0.0)], moe_setup=[{**SETUP, "forced": True}]))
