"""no-gpudirect: the cards, the channels without /GDRDMA, and why."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables


def job(**link: Any) -> Tables:
    row = {"kind": "gdr_disabled", "hosts": ["a"], "ranks": [0], "affected_count": 4, "all_count": 4, **link}
    return tables(spans=spans(step(compute_ns=50 * MS, comm_ns=50 * MS)), links=[row])


def fires() -> Tables:
    return job(devices="mlx5_0, mlx5_1", cause="NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")


def test_names_cards_and_channels() -> None:
    found = finding("no-gpudirect", fires())
    assert all(word in found.summary for word in ("mlx5_0", "mlx5_1", "4 of 4", "Disabled for HCA"))
    assert found.confidence_ratio > finding("no-gpudirect", job()).confidence_ratio


def test_quiet_for_other_offences() -> None:
    quiet("no-gpudirect", job(kind="socket_fallback"))
