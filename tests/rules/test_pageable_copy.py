"""pageable-copy: exposed copies of pageable host memory."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(exposed_ns: int = 10 * MS, **more: Any) -> Tables:
    copy = {"rank": 0, "step": 1, "direction": "h2d", "pageable": True, "size_bytes": 50 * MIB, "dur_ns": 10 * MS}
    copy |= {"exposed_ns": exposed_ns, "host_blocked_ns": 10 * MS, **more}
    return tables(spans=spans(step(compute_ns=100 * MS - exposed_ns, copy_ns=exposed_ns)), copies=[copy])


def fires() -> Tables:
    return job()


def test_fires_with_the_rate() -> None:
    found = finding("pageable-copy", fires())
    assert found.lost_ns == 10 * MS
    assert found.evidence["rate_bytes_per_s"] == pytest.approx(50 * MIB * 100)


def test_quiet_exactly_at_a_fiftieth_of_the_step() -> None:
    quiet("pageable-copy", job(2 * MS))
    finding("pageable-copy", job(2 * MS + 1))


def test_a_warning_above_a_twentieth() -> None:
    assert finding("pageable-copy", job(5 * MS)).severity == "info"
    assert finding("pageable-copy", job(5 * MS + 1)).severity == "warning"


def test_thresholds() -> None:
    turns_exactly_at("pageable-copy", fires(), min_size_bytes=50 * MIB, min_share_ratio=0.1)


@pytest.mark.parametrize("more", [{"pageable": False}, {"direction": "d2d"}, {"size_bytes": 4}, {"step": None}])
def test_quiet_for_pinned_inner_and_scalar_copies(more: dict[str, Any]) -> None:
    quiet("pageable-copy", job(**more))


def test_quiet_when_hidden() -> None:
    quiet("pageable-copy", job(0))


def test_no_answer_where_the_memory_kind_is_unknown() -> None:
    assert outcome("pageable-copy", job(pageable=None)).status == "skipped"
