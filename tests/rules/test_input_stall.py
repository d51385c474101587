"""input-stall: the step waits for the data loader."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def job(input_ns: int = 20 * MS, kernels: list[dict[str, Any]] | None = None) -> Tables:
    idle = [{"rank": 0, "step": 1, "cause": "input", "dur_ns": input_ns, "host": LOADER}] if input_ns else []
    return tables(
        spans=spans(step(compute_ns=100 * MS - input_ns, input_ns=input_ns)),
        idle=idle,
        kernels=[{"rank": 0, "step": 1, "device": 0, "launch_ns": 1}] if kernels is None else kernels,
    )


def fires() -> Tables:
    return job()


def test_fires_and_names_the_loader() -> None:
    found = finding("input-stall", fires())
    assert (found.lost_ns, found.severity, found.evidence["host"]) == (20 * MS, "warning", LOADER)


def test_the_first_step_counts_like_the_others() -> None:
    given = job() | {
        "spans": tables(spans=spans(*(step(n, compute_ns=140 * MS, input_ns=70 * MS) for n in (5, 6, 7))))["spans"]
    }
    found = finding("input-stall", given)
    assert (found.lost_ns, found.evidence["stalled_steps_count"]) == (70 * MS, 3)


def test_quiet_exactly_at_a_twentieth_and_critical_above_three_tenths() -> None:
    quiet("input-stall", job(5 * MS))
    finding("input-stall", job(5 * MS + 1))
    assert finding("input-stall", job(30 * MS)).severity == "warning"
    assert finding("input-stall", job(30 * MS + 1)).severity == "critical"


def test_thresholds() -> None:
    turns_exactly_at("input-stall", fires(), min_share_ratio=0.2)


def test_no_answer_without_host_calls() -> None:
    assert outcome("input-stall", job(0, kernels=[{"rank": 0, "device": 0}])).status == "skipped"
    quiet("input-stall", job(0, kernels=[{"rank": 0}]))  # a recording of the host alone shows loaders
