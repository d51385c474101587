"""aux-loss-coefficient: the balancing loss is off, too weak or too strong."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, outcome, quiet, turns_exactly_at
from tests.rules.moe_rows import BALANCE, SETUP, job


def fires() -> Tables:
    return job(moe_setup=[{**SETUP, "aux_loss_coeff": 0.0}], expert_balance=[{**BALANCE, "imbalance_ratio": 2.5}])


def test_fires() -> None:
    found = finding("aux-loss-coefficient", fires())

    assert "aux_loss is chosen, but its coefficient is 0" in found.summary and "2.5 times" in found.summary
    assert (found.severity, found.lost_ns) == ("warning", 0)


def test_thresholds() -> None:
    turns_exactly_at("aux-loss-coefficient", fires(), min_imbalance_ratio=2.5)
    weak = job(moe_setup=[{**SETUP, "aux_loss_coeff": 5e-5}], expert_balance=[{**BALANCE, "imbalance_ratio": 2.5}])
    quiet("aux-loss-coefficient", weak, max_weak_ratio=5e-5)
    assert finding("aux-loss-coefficient", weak, max_weak_ratio=5.1e-5)
    strong = job(moe_setup=[{**SETUP, "aux_loss_coeff": 1.0}])
    quiet("aux-loss-coefficient", strong, min_strong_ratio=1.0)
    assert "ten times" in finding("aux-loss-coefficient", strong, min_strong_ratio=0.99).summary


def test_quiet_where_something_else_balances() -> None:
    uneven = [{**BALANCE, "imbalance_ratio": 2.5}]
    for more in ({"expert_bias": True}, {"forced": True}, {"balancing": "none"}, {"balancing": "sinkhorn"}):
        quiet("aux-loss-coefficient", job(moe_setup=[{**SETUP, "aux_loss_coeff": 0.0, **more}], expert_balance=uneven))


def test_an_unknown_load_is_unknown() -> None:
    result = outcome("aux-loss-coefficient", job(moe_setup=[{**SETUP, "aux_loss_coeff": 0.0}], expert_balance=[]))
    assert result.status == "skipped" and "load of the experts" in result.reason
