"""missing-dispatch: exchanges carry less than the tokens need."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MIB, finding, outcome, quiet, turns_exactly_at
from tests.rules.moe_rows import BYTES, job


def fires() -> Tables:
    return job(dispatch_bytes=[{**BYTES, "measured_bytes": 60 * MIB, "measured_ratio": 0.6, "unexplained_ratio": 0.6}])


def test_fires() -> None:
    found = finding("missing-dispatch", fires())

    assert found.lost_bytes == 40 * MIB and "carries 60.0 MiB per rank, 60.0 % of what its tokens need" in found.summary


def test_thresholds() -> None:
    given = fires()
    quiet("missing-dispatch", given, max_expected_ratio=0.6)
    assert finding("missing-dispatch", given, max_expected_ratio=0.61)
    short = job(dispatch_bytes=[BYTES, {**BYTES, "way": "back", "measured_bytes": 75 * MIB}])
    turns_exactly_at("missing-dispatch", short, min_return_ratio=0.25)
    assert "brought back are 75.0 %" in finding("missing-dispatch", short).summary


def test_chunks_of_a_micro_batch_are_not_missing() -> None:
    half = {**BYTES, "measured_bytes": 50 * MIB, "measured_ratio": 0.5, "unexplained_ratio": 0.5}
    quiet("missing-dispatch", job(dispatch_bytes=[half, {**half, "way": "back"}]))


def test_the_way_back_may_be_wider() -> None:
    out = {**BYTES, "measured_bytes": 50 * MIB, "recorded_width": 1.0}
    quiet("missing-dispatch", job(dispatch_bytes=[out, {**BYTES, "way": "back"}]))


def test_drops_that_nobody_knows_explain_nothing() -> None:
    given = {**BYTES, "measured_bytes": 50 * MIB, "unexplained_ratio": 0.5, "kept_ratio": None}
    quiet("missing-dispatch", job(dispatch_bytes=[given]))


def test_missing_numbers_are_named() -> None:
    given = {**BYTES, "measured_ratio": None, "unexplained_ratio": None, "missing": "model.topk, model.hidden"}
    result = outcome("missing-dispatch", job(dispatch_bytes=[given]))
    assert result.status == "skipped" and "model.topk, model.hidden" in result.reason
