"""Rows of pipelines for rule tests: an even one with many micro-batches, and what to change in it."""

from __future__ import annotations

from typing import Any

from tests.rules.build import MS

Row = dict[str, Any]


def bubble(step: int = 1, **more: Any) -> Row:
    """One step of 4 stages and 64 micro-batches of 12 ms: 804 ms, of which 36 ms are bubble (4.5 %)."""
    return {
        "step": step, "replica": 0, "measured": True, "analysed": True, "schedule": "1f1b", "stages_count": 4,
        "microbatches_count": 64, "chunks_count": 1, "dur_ns": 804 * MS, "busy_ns": 768 * MS, "idle_ratio": 36 / 804,
        "work_ns": 768 * MS, "schedule_ns": 36 * MS, "bubble_ns": 36 * MS, "bubble_ratio": 36 / 804, "imbalance_ns": 0,
            "variation_ns": 0,
        "transfer_ns": 0, "law_ns": 36 * MS, "law_ratio": 36 / 804, "stage_law_ratio": 36 / 804, **more,
    }  # fmt: skip


def stage(number: int, compute_ns: int = 12 * MS, others_ns: int = 12 * MS, **more: Any) -> Row:
    """One stage in step 1."""
    return {
        "step": 1, "stage": number, "analysed": True, "replicas_count": 1, "compute_ns": compute_ns,
        "forward_ns": compute_ns // 3, "backward_ns": compute_ns - compute_ns // 3, "others_ns": others_ns,
        "ratio": compute_ns / others_ns, "share_ratio": 0.25, "heavy": False, **more,
    }  # fmt: skip


def healthy() -> dict[str, list[Row]]:
    """Tables of the even pipeline."""
    return {
        "bubbles": [bubble()],
        "stages": [stage(n) for n in range(4)],
        "pipeline": [{"step": 1, "replica": 0, "stage": n, "rank": n, "analysed": True} for n in range(4)],
    }
