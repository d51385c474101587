"""excess-dispatch-bytes: all-to-alls carry more than the tokens need."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, Row, finding, quiet
from tests.rules.moe_rows import BYTES, TRACE, job

DOUBLE: Row = {**BYTES, "measured_bytes": 200 * MIB, "measured_ratio": 2.0, "unexplained_ratio": 2.0}


def fires() -> Tables:
    return job(dispatch_bytes=[DOUBLE])


def test_fires() -> None:
    found = finding("excess-dispatch-bytes", fires())

    assert found.lost_bytes == 100 * MIB and found.lost_ns == MS, "half of the bytes, of one way of two"
    assert "to the experts carries 200 MiB" in found.summary and "100.0 % more" in found.summary
    assert "each token seems to be sent 2" in found.summary


def test_threshold_of_what_nothing_explains() -> None:
    quiet("excess-dispatch-bytes", fires(), min_unexplained_ratio=2.0, min_configured_ratio=2.0)
    assert finding("excess-dispatch-bytes", fires(), min_unexplained_ratio=1.999, min_configured_ratio=2.0)
    assert finding("excess-dispatch-bytes", fires(), min_unexplained_ratio=2.0, min_configured_ratio=1.999)


def test_threshold_of_what_settings_explain() -> None:
    padded = {**DOUBLE, "padding_ratio": 2.0, "unexplained_ratio": 1.0, "expected_bytes": 200 * MIB}
    quiet("excess-dispatch-bytes", job(dispatch_bytes=[padded]), min_configured_ratio=2.0)
    found = finding("excess-dispatch-bytes", job(dispatch_bytes=[padded]), min_configured_ratio=1.99)
    assert "padded to 2.0 times the tokens" in found.summary


def test_names_replicas_and_wide_elements() -> None:
    copied = {**DOUBLE, "copies_ratio": 2.0, "unexplained_ratio": 1.0, "expected_bytes": 200 * MIB}
    assert (
        "all 2.0 ranks that share an expert" in finding("excess-dispatch-bytes", job(dispatch_bytes=[copied])).summary
    )
    wide = {**DOUBLE, "element_width": 1.03, "recorded_width": 2.0, "unexplained_ratio": 1.94}
    assert (
        "elements are 2.0 bytes wide, not 1.03" in finding("excess-dispatch-bytes", job(dispatch_bytes=[wide])).summary
    )


def test_quiet_at_the_usual_padding_and_without_numbers() -> None:
    usual = {**BYTES, "measured_bytes": 125 * MIB, "measured_ratio": 1.25, "padding_ratio": 1.25}
    quiet("excess-dispatch-bytes", job(dispatch_bytes=[usual]))
    unknown = {**BYTES, "measured_ratio": None, "unexplained_ratio": None, "missing": "model.topk"}
    quiet("excess-dispatch-bytes", job(dispatch_bytes=[unknown], expert_balance=[TRACE]))
