"""expert-tensor-overlap: exchanges and tensor-parallel collectives slow each other."""

from __future__ import annotations

import pytest

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, turns_exactly_at
from tests.rules.moe_rows import EXCHANGE, job


def fires() -> Tables:
    alone = {**EXCHANGE, "dur_ns": 4 * MS, "exposed_ns": 4 * MS}
    together = {**EXCHANGE, "way": "back", "dur_ns": 12 * MS, "exposed_ns": 12 * MS, "tp_overlap_ns": 8 * MS}
    return job(exchanges=[alone, together])


def test_fires() -> None:
    found = finding("expert-tensor-overlap", fires())

    assert found.lost_ns == 8 * MS, "12 ms where 4 ms would do"
    assert found.evidence["slower_ratio"] == pytest.approx(3.0) and found.evidence["overlap_ratio"] == 0.5


def test_thresholds() -> None:
    turns_exactly_at("expert-tensor-overlap", fires(), min_overlap_ratio=0.5, min_share_ratio=0.08)


def test_quiet_where_nothing_is_slower() -> None:
    row = {**EXCHANGE, "tp_overlap_ns": 2 * MS}
    quiet("expert-tensor-overlap", job(exchanges=[EXCHANGE, row]))
    quiet("expert-tensor-overlap", job(exchanges=[row]))
