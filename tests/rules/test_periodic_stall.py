"""periodic-stall: single steps that keep a rhythm take a visible share of the run."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, tables, turns_exactly_at
from tests.rules.drift_rows import JOB_SPANS, level


def stall(step: int, **changes: Any) -> dict[str, Any]:
    row = {"step": step, "kind": "periodic", "part": "checkpoint", "excess_ns": 3000 * MS, "usual_ns": 900 * MS}
    return row | {"excess_ratio": 3.3, "period_count": 40, "run_count": 120} | changes


def job(count: int = 3, **changes: Any) -> Tables:
    return tables(spans=JOB_SPANS, stalls=[stall(40 * n, **changes) for n in range(1, count + 1)], trends=[level()])


def fires() -> Tables:
    return job()


def test_fires() -> None:
    found = finding("periodic-stall", fires())

    assert (found.lost_ns, found.steps) == (75 * MS, (40, 80, 120))
    assert "every 40 steps one takes 3.00 s longer in checkpoint: 3 times, 9.00 s in all" in found.summary


def test_thresholds() -> None:
    share = 9000 / (9000 + 120 * 900)
    turns_exactly_at("periodic-stall", fires(), min_share_ratio=share, min_stalls_count=3)


def test_quiet_on_single_stalls_pauses_and_warm_up() -> None:
    quiet("periodic-stall", job(kind="single", period_count=None))
    quiet("periodic-stall", job(kind="warm_up", period_count=None))
    quiet("periodic-stall", job(part="gc", rank=1))
    quiet("periodic-stall", job(0))
