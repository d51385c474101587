"""slow-rank: step records name the rank that works longest in every step."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables, turns_exactly_at


def row(**changes: Any) -> dict[str, Any]:
    """Rank 3 works 90 of 100 ms in nine of ten steps, the others 60."""
    usual = {
        "rank": 3, "ranks": [3], "steps_count": 200, "step_ns": 100 * MS, "own_ns": 90 * MS, "others_ns": 60 * MS,
        "comm_ns": 5 * MS, "others_comm_ns": 40 * MS, "longest_ratio": 0.9, "lost_ns": 25 * MS, "confirmed": True,
        "ranks_count": 4,
    }  # fmt: skip
    return usual | changes


def fires() -> Tables:
    return tables(slow_ranks=[row()], spans=spans(step(compute_ns=100 * MS)))


def test_fires() -> None:
    found = finding("slow-rank", fires())

    assert (found.lost_ns, found.symptom, found.severity) == (25 * MS, "low_speedup", "critical")
    assert "rank 3 works 90.0 ms of a step of 100 ms, the others 60.0 ms" in found.summary


def test_names_the_part_where_it_is_known() -> None:
    found = finding("slow-rank", tables(slow_ranks=[row(part="input", part_ns=24 * MS)]))

    assert found.summary.endswith("24.0 ms of it in its data loader")


def test_thresholds() -> None:
    turns_exactly_at("slow-rank", fires(), min_share_ratio=0.25, min_longest_ratio=0.9)


def test_quiet_where_the_others_do_not_wait() -> None:
    quiet("slow-rank", tables(slow_ranks=[row(confirmed=False)]))
