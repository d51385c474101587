"""expert-imbalance: few experts get most of the tokens, or one rank's experts take longest."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, Row, finding, outcome, quiet, tables, turns_exactly_at
from tests.rules.moe_rows import BALANCE, JOB_SPANS, SETUP, TRACE, job

UNEVEN: Row = {**TRACE, "ep_imbalance_ratio": 2.0, "busiest_expert_ns": 60 * MS, "gain_ns": 25 * MS, "gain_ratio": 0.25}


def fires() -> Tables:
    return job(expert_balance=[{**BALANCE, "imbalance_ratio": 2.5, "ep_imbalance_ratio": None}])


def test_fires_on_records() -> None:
    found = finding("expert-imbalance", fires())

    assert (found.lost_ns, found.severity) == (0, "warning")
    assert "gets 2.5 times an even share" in found.summary and "traces of all ranks would tell" in found.summary


def test_fires_on_a_trace() -> None:
    found = finding("expert-imbalance", tables(spans=JOB_SPANS, moe_setup=[SETUP], expert_balance=[UNEVEN]))

    assert (found.lost_ns, found.ranks, found.severity) == (25 * MS, (2,), "critical")
    assert "experts of rank 2 compute 60.0 ms" in found.summary and "would win 25.0 ms" in found.summary


def test_fires_on_split_sizes_of_some_ranks() -> None:
    row = {"source": "splits", "ep_imbalance_ratio": 1.8, "busiest_ep_rank": 3}
    given = tables(moe_setup=[SETUP], expert_balance=[row])

    assert "rank 3 of the expert-parallel group gets 1.8 times the mean" in finding("expert-imbalance", given).summary
    quiet("expert-imbalance", given, min_ep_imbalance_ratio=1.8)


def test_thresholds_of_records() -> None:
    base = {**BALANCE, "worst_ratio": 1.0}
    experts = job(expert_balance=[{**base, "imbalance_ratio": 2.5, "ep_imbalance_ratio": None}])
    ranks = job(expert_balance=[{**base, "ep_imbalance_ratio": 1.75}])
    layer = job(expert_balance=[{**base, "worst_ratio": 5.0}])
    for given, name, value in (
        (experts, "min_imbalance_ratio", 2.5),
        (ranks, "min_ep_imbalance_ratio", 1.75),
        (layer, "min_layer_imbalance_ratio", 5.0),
    ):
        quiet("expert-imbalance", given, **{name: value})
        assert finding("expert-imbalance", given, **{name: value - 1e-9})


def test_thresholds_of_a_trace() -> None:
    given = tables(spans=JOB_SPANS, moe_setup=[SETUP], expert_balance=[UNEVEN])
    turns_exactly_at("expert-imbalance", given, min_gain_ratio=0.25, min_received_imbalance_ratio=2.0)


def test_chance_does_not_count() -> None:
    quiet("expert-imbalance", job(expert_balance=[{**BALANCE, "imbalance_ratio": 2.5, "chance_imbalance_ratio": 1.6}]))


def test_unequal_times_with_equal_bytes_are_a_slow_rank() -> None:
    given = [{**UNEVEN, "ep_imbalance_ratio": 1.02}]
    quiet("expert-imbalance", tables(spans=JOB_SPANS, moe_setup=[SETUP], expert_balance=given))


def test_a_forced_balance_says_nothing() -> None:
    forced = [{**SETUP, "forced": True}]
    uneven = [{**BALANCE, "imbalance_ratio": 2.5, "forced": True}]
    quiet("expert-imbalance", job(moe_setup=forced, expert_balance=uneven, router_load=[]))
    result = outcome("expert-imbalance", job(moe_setup=forced, expert_balance=[], router_load=[]))
    assert result.status == "skipped" and "forced to an even load" in result.reason


def test_no_records_is_unknown() -> None:
    result = outcome("expert-imbalance", tables(moe_setup=[SETUP]))
    assert result.status == "skipped" and "diagnose.live.moe.observe" in result.reason
