"""latency-bound-collectives: small calls whose time is latency, not waiting."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(calls: int, dur_ns: int = 100_000, size_bytes: int | None = 4096, hidden_ns: int = 0) -> Tables:
    return tables(
        spans=spans(step(compute_ns=90 * MS, comm_ns=10 * MS)),
        collectives=[call("all_reduce", dur_ns, hidden_ns, size_bytes=size_bytes, dim="tp")] * calls,
    )


def fires() -> Tables:
    return job(80)


def test_fires_whatever_the_dimension() -> None:
    found = finding("latency-bound-collectives", fires())
    assert (found.lost_ns, found.evidence["calls_count"]) == (8 * MS, 80)


def test_quiet_exactly_at_a_twentieth_of_the_step() -> None:
    quiet("latency-bound-collectives", job(50))
    finding("latency-bound-collectives", job(51))


def test_thresholds() -> None:
    measured = {"max_size_bytes": 4096, "max_dur_ns": 100_000, "min_share_ratio": 0.08}
    turns_exactly_at("latency-bound-collectives", fires(), **measured)


def test_a_long_small_call_waits_for_someone() -> None:
    quiet("latency-bound-collectives", job(2, dur_ns=5 * MS))


def test_quiet_when_hidden() -> None:
    quiet("latency-bound-collectives", job(80, hidden_ns=100_000))


def test_no_answer_without_sizes() -> None:
    assert outcome("latency-bound-collectives", job(80, size_bytes=None)).status == "skipped"


def test_a_warning_above_a_tenth_of_the_step() -> None:
    assert finding("latency-bound-collectives", job(100)).severity == "info"
    wide = tables(spans=spans(step(compute_ns=89 * MS, comm_ns=11 * MS)))["spans"]
    assert finding("latency-bound-collectives", job(101) | {"spans": wide}).severity == "warning"
