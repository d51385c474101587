"""allocation-stall: idle in cudaMalloc and cudaFree."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables, turns_exactly_at


def job(alloc_ns: int = 20 * MS) -> Tables:
    stall = {"rank": 0, "step": 1, "cause": "alloc", "dur_ns": alloc_ns // 2, "host": "cudaFree"}
    return tables(spans=spans(step(compute_ns=100 * MS - alloc_ns, alloc_ns=alloc_ns)), idle=[stall, stall])


def fires() -> Tables:
    return job()


def test_fires_and_names_the_call() -> None:
    found = finding("allocation-stall", fires())
    assert (found.lost_ns, found.evidence["host"], found.evidence["stalls_count"]) == (20 * MS, "cudaFree", 2)


def test_quiet_exactly_at_a_twentieth_of_the_step() -> None:
    quiet("allocation-stall", job(5 * MS))
    finding("allocation-stall", job(5 * MS + 1))


def test_thresholds() -> None:
    turns_exactly_at("allocation-stall", fires(), min_share_ratio=0.2)
