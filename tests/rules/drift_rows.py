"""Rows of `trends`, `slowdowns` and `stalls` for rule tests: a job whose 1 s step grew by a tenth from step 600 of
2,000.
"""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, spans, step, tables

JOB_SPANS = spans(step(compute_ns=1000 * MS))


def trend(**changes: Any) -> dict[str, Any]:
    """The job's step, drifting."""
    row = {
        "metric": "step", "shape": "drift", "first_step": 10, "last_step": 2000, "steps_count": 1980,
        "covered_count": 1991, "from_step": 600, "early": 900.0 * MS, "late": 990.0 * MS, "mean": 940.0 * MS,
        "change_ratio": 0.1, "slope": 64_000.0, "noise_ratio": 0.01, "confidence_ratio": 0.99, "timed": True,
        "warm_up_count": 9, "stalls_count": 1, "ramp_count": 0,
    }  # fmt: skip
    return row | changes


def level(**changes: Any) -> dict[str, Any]:
    """The job's step, level over 1,991 steps."""
    quiet = {"shape": "level", "from_step": None, "late": 901.0 * MS, "mean": 900.0 * MS, "change_ratio": 0.001}
    return trend(**quiet) | changes


def slowdown(cause: str, **changes: Any) -> dict[str, Any]:
    """A cause that explains all of the growth, on rank 3."""
    row = {
        "cause": cause, "ranks": [3], "part": "compute", "shape": "step", "from_step": 600, "grown_ns": 90 * MS,
        "part_grown_ns": 90 * MS, "explained_ratio": 0.5, "lost_ns": 40 * MS, "usual_ns": 900 * MS,
        "sign": "sm_clock_mhz", "sign_early": 1980.0, "sign_late": 1410.0, "confidence_ratio": 0.99,
    }  # fmt: skip
    return row | changes


def of_cause(cause: str, **changes: Any) -> Tables:
    """Tables in which one cause was found."""
    return tables(spans=JOB_SPANS, slowdowns=[slowdown(cause, **changes)], trends=[trend()])


def healthy() -> dict[str, list[dict[str, Any]]]:
    """A level run of 1,991 steps with warm-up, one stall, a cheap checkpoint and short planned collections."""
    single = {"step": 700, "kind": "single", "excess_ns": 3 * MS, "excess_ratio": 0.3, "usual_ns": 10 * MS}
    return {
        "trends": [level(early=100.0 * MS, late=100.1 * MS, mean=100.0 * MS)],
        "host_faults": [
            {"host": "node1", "kind": "pcie_error", "blame": "device", "severity": "warning", "messages_count": 2,
             "corrected": True}
        ],
        "stalls": [single | {"run_count": 2000}],
        "pauses": [{"source": "trace", "ranks": [0], "lost_ns": MS // 2, "step_ns": 100 * MS, "pauses_count": 1}],
    }  # fmt: skip
