"""exposed-dispatch: moving tokens takes a large share of the step."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, turns_exactly_at
from tests.rules.moe_rows import EXCHANGE, job


def fires() -> Tables:
    to = {**EXCHANGE, "dur_ns": 10 * MS, "exposed_ns": 10 * MS}
    return job(exchanges=[to, {**to, "way": "back"}])


def test_fires() -> None:
    found = finding("exposed-dispatch", fires())

    assert found.lost_ns == 20 * MS and found.severity == "warning" and found.confidence_ratio == 1.0
    assert (found.evidence["dispatch_ns"], found.evidence["combine_ns"]) == (10 * MS, 10 * MS)


def test_thresholds() -> None:
    turns_exactly_at("exposed-dispatch", fires(), min_share_ratio=0.2)
    assert finding("exposed-dispatch", fires(), critical_share_ratio=0.2).severity == "warning"
    assert finding("exposed-dispatch", fires(), critical_share_ratio=0.199).severity == "critical"


def test_waiting_and_hidden_time_do_not_count() -> None:
    row = {**EXCHANGE, "dur_ns": 40 * MS, "wait_ns": 30 * MS, "exposed_ns": 30 * MS, "exposed_wait_ns": 28 * MS}
    quiet("exposed-dispatch", job(exchanges=[row]))


def test_the_rank_that_waits_least_counts() -> None:
    row = {**EXCHANGE, "dur_ns": 25 * MS, "exposed_ns": 25 * MS, "wait_ns": None, "exposed_wait_ns": None}
    both = spans(*(step(rank=rank, compute_ns=70 * MS, comm_ns=30 * MS) for rank in (0, 1)))
    given = job(spans=both, exchanges=[row, {**row, "rank": 1, "exposed_ns": 20 * MS}])
    found = finding("exposed-dispatch", given)
    assert (found.lost_ns, found.ranks, found.confidence_ratio) == (20 * MS, (1,), 0.7)


def test_quiet_without_compute() -> None:
    quiet("exposed-dispatch", job(spans=spans(step(comm_ns=100 * MS)), exchanges=[EXCHANGE]))
