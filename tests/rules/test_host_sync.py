"""host-sync: only the idle time after a blocking call counts, under the operator that made it."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at

KERNEL = {"rank": 0, "step": 1, "device": 0, "launch_ns": 1}


def job(*syncs: dict[str, Any], sync_ns: int = 45 * MS, kernels: list[dict[str, Any]] | None = None) -> Tables:
    return tables(
        spans=spans(step(compute_ns=100 * MS - sync_ns, sync_ns=sync_ns)),
        syncs=list(syncs),
        kernels=[KERNEL] if kernels is None else kernels,
    )


def sync(idle_ns: int = 3 * MS, op: str | None = "aten::item", **more: Any) -> dict[str, Any]:
    return {
        "rank": 0,
        "step": 1,
        "name": "cudaStreamSynchronize",
        "op": op,
        "dur_ns": 3_500_000,
        "idle_ns": idle_ns,
        **more,
    }


def fires() -> Tables:
    return job(*[sync()] * 15)


def test_counts_the_gaps_and_names_the_operator() -> None:
    found = finding("host-sync", fires())
    assert (found.lost_ns, found.evidence["op"], found.evidence["calls_count"]) == (45 * MS, "aten::item", 15)
    assert found.evidence["blocked_ns"] == 52_500_000, "shown, not counted"
    assert "15 blocking calls under aten::item" in found.summary


def test_one_finding_per_operator() -> None:
    result = outcome("host-sync", job(*[sync()] * 10, sync(15 * MS, op=None)))
    assert [(f.evidence["op"], f.lost_ns) for f in result.findings] == [
        ("aten::item", 30 * MS),
        ("cudaStreamSynchronize", 15 * MS),
    ]


def test_quiet_exactly_at_a_twentieth_of_the_step() -> None:
    quiet("host-sync", job(sync(5 * MS)))
    finding("host-sync", job(sync(5 * MS + 1)))


def test_thresholds() -> None:
    turns_exactly_at("host-sync", fires(), min_share_ratio=0.45)


def test_a_long_wait_with_queued_work_costs_nothing() -> None:
    quiet("host-sync", job(sync(0), sync_ns=0))


def test_calls_outside_the_analysed_steps_do_not_count() -> None:
    quiet("host-sync", job(sync(40 * MS, step=None)))


def test_no_answer_without_host_calls() -> None:
    unlinked = [{"rank": 0, "step": 1, "device": 0}]
    result = outcome("host-sync", job(sync_ns=0, kernels=unlinked))
    assert (result.status, "no host call" in result.reason) == ("skipped", True)
    finding("host-sync", job(*[sync()] * 15, kernels=unlinked))


def test_autotuning_is_not_answered_with_advice_on_item() -> None:
    assert "benchmark" in finding("host-sync", job(*[sync(op="aten::cudnn_convolution")] * 15)).fix
    assert "benchmark" not in finding("host-sync", fires()).fix
