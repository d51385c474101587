"""recompute-overhead: the forward pass done again."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables, turns_exactly_at


def job(busy_ns: int = 24 * MS) -> Tables:
    row = {
        "rank": 0,
        "step": 1,
        "busy_ns": busy_ns,
        "forward_ns": 30 * MS,
        "kernels_count": 500,
        "evidence": "checkpoint_frame",
    }
    return tables(spans=spans(step(compute_ns=100 * MS)), recompute=[row])


def fires() -> Tables:
    return job()


def test_fires_with_the_share_of_the_forward_pass() -> None:
    found = finding("recompute-overhead", fires())
    assert (found.lost_ns, found.evidence["again_ratio"], found.confidence_ratio) == (24 * MS, 0.8, 0.5)
    assert "memory" in found.fix


def test_quiet_exactly_at_a_tenth_of_the_step() -> None:
    quiet("recompute-overhead", job(10 * MS))
    finding("recompute-overhead", job(10 * MS + 1))


def test_thresholds() -> None:
    turns_exactly_at("recompute-overhead", fires(), min_share_ratio=0.24)


def test_quiet_without_recomputation() -> None:
    quiet("recompute-overhead", tables(spans=spans(step(compute_ns=100 * MS))))
