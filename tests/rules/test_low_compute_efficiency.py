"""low-compute-efficiency: matrix products far below the peak."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def product(dur_ns: int, efficiency_ratio: float | None, **more: Any) -> dict[str, Any]:
    shape = {"op": "aten::mm", "m": 64, "n": 4096, "k": 4096, "batch": 1, "dtype": "bfloat16"}
    return {"rank": 0, "step": 1, **shape, "dur_ns": dur_ns, "efficiency_ratio": efficiency_ratio, **more}


def job(*products: dict[str, Any]) -> Tables:
    return tables(spans=spans(step(compute_ns=80 * MS, comm_ns=20 * MS)), gemms=list(products))


def fires() -> Tables:
    return job(product(40 * MS, 0.25))


def test_fires_with_the_shape_that_loses_most() -> None:
    found = finding("low-compute-efficiency", job(product(40 * MS, 0.25), product(20 * MS, 0.45, m=8192)))
    assert found.evidence["efficiency_ratio"] == pytest.approx((40 * 0.25 + 20 * 0.45) / 60)
    assert found.evidence["shape"] == "64 x 4096 x 4096"


def test_what_is_lost_is_what_the_target_rate_would_save() -> None:
    assert finding("low-compute-efficiency", fires()).lost_ns == 20 * MS


def test_no_more_than_the_compute_part() -> None:
    assert finding("low-compute-efficiency", job(product(400 * MS, 0.25))).lost_ns == 40 * MS


def test_quiet_at_the_default_efficiency() -> None:
    quiet("low-compute-efficiency", job(product(80 * MS, 0.4)))
    finding("low-compute-efficiency", job(product(80 * MS, 0.3999)))


def test_quiet_exactly_at_a_twentieth_of_the_step() -> None:
    quiet("low-compute-efficiency", job(product(10 * MS, 0.25)))
    finding("low-compute-efficiency", job(product(10 * MS + 4, 0.25)))


def test_thresholds() -> None:
    turns_exactly_at("low-compute-efficiency", fires(), max_efficiency_ratio=0.25, min_share_ratio=0.2)


def test_the_target_is_a_parameter() -> None:
    assert finding("low-compute-efficiency", fires(), target_ratio=0.75).lost_ns == pytest.approx(
        40 * MS * 2 / 3, abs=1
    )
    quiet("low-compute-efficiency", fires(), target_ratio=0.25)


def test_no_answer_without_shapes_or_peak() -> None:
    assert outcome("low-compute-efficiency", job(product(40 * MS, None))).status == "skipped"
