"""low-capacity-factor: experts have too little room even for an even load."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, turns_exactly_at
from tests.rules.moe_rows import LOAD, job


def fires() -> Tables:
    return job(router_load=[{**LOAD, "capacity_count": 1_000, "dropped_count": 8_000, "drop_ratio": 0.5}])


def test_fires() -> None:
    found = finding("low-capacity-factor", fires())

    assert found.severity == "critical" and found.lost_ns == 0
    assert "room for 0.5 times an even share" in found.summary and "a factor of 1.2" in found.summary


def test_thresholds() -> None:
    given = job(router_load=[{**LOAD, "dropped_count": 800, "drop_ratio": 0.05}])  # room for 1.25
    turns_exactly_at("low-capacity-factor", given, min_drop_ratio=0.05)
    assert finding("low-capacity-factor", given, max_imbalance_ratio=1.21)
    quiet("low-capacity-factor", given, max_imbalance_ratio=1.2)


def test_quiet_where_the_load_is_the_cause() -> None:
    quiet("low-capacity-factor", job(router_load=[{**LOAD, "dropped_count": 5_000, "imbalance_ratio": 2.9}]))


def test_quiet_without_a_capacity() -> None:
    quiet("low-capacity-factor", job(router_load=[{**LOAD, "dropless": True, "capacity_count": None}]))
