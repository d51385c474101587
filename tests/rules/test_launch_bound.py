"""launch-bound: idle because the host launched late."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(launch_ns: int = 30 * MS, idle_ns: int = 0, stacks: bool = False, **kernel: Any) -> Tables:
    kernel = {
        "rank": 0,
        "step": 1,
        "device": 0,
        "class": "compute",
        "dur_ns": 5_000,
        "launch_ns": 1,
        "graph": False,
        **kernel,
    }
    return tables(
        spans=spans(step(compute_ns=100 * MS - launch_ns - idle_ns, launch_ns=launch_ns, idle_ns=idle_ns)),
        idle=[
            {
                "rank": 0,
                "step": 1,
                "cause": "launch",
                "dur_ns": launch_ns,
                "host": "aten::mul",
                "source": "train.py:10",
            },
            {"rank": 0, "step": 1, "cause": "sync", "dur_ns": 99 * MS, "host": "aten::item"},
        ],
        kernels=[kernel] * 40,
        profiler_cost=[{"rank": 0, "kind": "stacks"}] if stacks else [],
    )


def fires() -> Tables:
    return job()


def test_fires_with_the_operator_and_the_size_of_kernels() -> None:
    found = finding("launch-bound", fires())
    assert (found.lost_ns, found.ranks, found.evidence["kernels_count"]) == (30 * MS, (0,), 40)
    assert "100.0 % of it before aten::mul" in found.summary
    assert (found.evidence["host"], found.evidence["source"], found.evidence["median_ns"]) == (
        "aten::mul",
        "train.py:10",
        5000,
    )


def test_recorded_stacks_are_a_reason_to_doubt() -> None:
    found = finding("launch-bound", job(stacks=True))
    assert "confirm without with_stack" in found.summary
    assert found.confidence_ratio < finding("launch-bound", fires()).confidence_ratio


def test_quiet_exactly_at_a_tenth_of_the_step() -> None:
    quiet("launch-bound", job(10 * MS))
    finding("launch-bound", job(10 * MS + 1))


def test_thresholds() -> None:
    turns_exactly_at("launch-bound", fires(), min_share_ratio=0.3)


def test_the_worst_rank_is_named() -> None:
    given = fires() | {
        "spans": tables(
            spans=spans(
                step(compute_ns=80 * MS, launch_ns=20 * MS), step(rank=1, compute_ns=60 * MS, launch_ns=40 * MS)
            )
        )["spans"]
    }
    assert finding("launch-bound", given).ranks == (1,)


def test_idle_of_unknown_cause_is_not_clear() -> None:
    result = outcome("launch-bound", job(5 * MS, idle_ns=30 * MS))
    assert (result.status, "does not show" in result.reason) == ("skipped", True)
    quiet("launch-bound", job(9 * MS, idle_ns=10 * MS))


def test_no_answer_where_kernels_have_no_launch() -> None:
    assert (
        outcome("launch-bound", job(launch_ns=30 * MS) | {"kernels": tables(kernels=[{"rank": 0}])["kernels"]}).status
        == "skipped"
    )


def test_long_gaps_before_few_kernels_are_not_slow_launches() -> None:
    assert "torch.compile" in finding("launch-bound", job(launch_ns=40 * MS)).fix, "1 ms a kernel: still launches"
    assert "does something else" in finding("launch-bound", job(launch_ns=40 * MS + 40)).fix
