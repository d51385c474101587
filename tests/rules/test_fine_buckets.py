"""fine-buckets: gradients in many small pieces."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(pieces: int, size_bytes: int | None = 64 * 1024, dur_ns: int = MS // 10, exposed_ns: int = 10 * MS) -> Tables:
    return tables(
        spans=spans(step(compute_ns=100 * MS - exposed_ns, comm_ns=exposed_ns)),
        collectives=[call("all_reduce", dur_ns, size_bytes=size_bytes)] * pieces,
    )


def fires() -> Tables:
    return job(100)


def test_fires_on_one_call_per_parameter() -> None:
    found = finding("fine-buckets", fires())
    assert (found.lost_ns, found.evidence["calls_count"], found.evidence["median_ns"]) == (10 * MS, 100, MS // 10)


def test_quiet_at_the_default_count_and_share() -> None:
    quiet("fine-buckets", job(32, dur_ns=MS))
    finding("fine-buckets", job(33, dur_ns=MS, exposed_ns=33 * MS))
    quiet("fine-buckets", job(100, dur_ns=30_000, exposed_ns=3 * MS))


def test_thresholds() -> None:
    turns_exactly_at("fine-buckets", fires(), max_size_bytes=64 * 1024, min_calls_count=100, min_share_ratio=0.1)


def test_quiet_with_usual_buckets() -> None:
    quiet("fine-buckets", job(100, size_bytes=MIB + 1))


def test_no_answer_without_sizes() -> None:
    assert outcome("fine-buckets", job(100, size_bytes=None)).status == "skipped"


def test_a_warning_above_a_tenth_of_the_step() -> None:
    assert finding("fine-buckets", job(100)).severity == "info"
    assert finding("fine-buckets", job(100, dur_ns=MS // 10 + 1, exposed_ns=10 * MS + 100)).severity == "warning"
