"""coarse-buckets: one call carries most of the gradients, and nothing hides it."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(*calls: dict[str, Any], exposed_ns: int = 20 * MS) -> Tables:
    return tables(spans=spans(step(compute_ns=100 * MS - exposed_ns, comm_ns=exposed_ns)), collectives=list(calls))


def fires() -> Tables:
    return job(call("all_reduce", 20 * MS, size_bytes=250 * MIB, busbw_bytes_per_s=250e9))


def test_the_tail_of_a_usual_bucket_is_not_lost() -> None:
    found = finding("coarse-buckets", fires())
    assert found.lost_ns == 18 * MS, "25 of 250 MiB would stay exposed"
    assert found.evidence["bytes_ratio"] == 1
    assert "no network fault" in found.summary


def test_no_more_is_lost_than_compute_could_hide() -> None:
    given = tables(
        spans=spans(step(compute_ns=8 * MS, comm_ns=92 * MS)),
        collectives=[call("all_reduce", 92 * MS, size_bytes=2500 * MIB)],
    )
    assert finding("coarse-buckets", given).lost_ns == 8 * MS


def test_quiet_with_equal_buckets_or_a_hidden_one() -> None:
    quiet("coarse-buckets", job(*[call("all_reduce", 10 * MS, size_bytes=100 * MIB)] * 2))
    quiet("coarse-buckets", job(call("all_reduce", 20 * MS, 19 * MS, size_bytes=250 * MIB), exposed_ns=MS))


def test_thresholds() -> None:
    calls = (call("all_reduce", 20 * MS, 4 * MS, size_bytes=100 * MIB), call("all_reduce", MS, MS, size_bytes=25 * MIB))
    given = job(*calls, exposed_ns=16 * MS)
    turns_exactly_at("coarse-buckets", given, min_bytes_ratio=0.8, min_exposed_ratio=0.8, min_share_ratio=0.12)


def test_a_call_of_one_usual_bucket_is_fine() -> None:
    quiet("coarse-buckets", job(call("all_reduce", 20 * MS, size_bytes=25 * MIB)), min_share_ratio=0.0)


def test_no_answer_without_sizes() -> None:
    assert outcome("coarse-buckets", job(call("all_reduce", 20 * MS))).status == "skipped"


def test_a_warning_above_a_tenth_of_the_step() -> None:
    call_ns = 100 * MS // 9
    half = tables(
        spans=spans(step(compute_ns=90 * MS, comm_ns=10 * MS)),
        collectives=[call("all_reduce", 2 * call_ns, size_bytes=250 * MIB)],
    )
    assert finding("coarse-buckets", half).severity == "info"
    assert finding("coarse-buckets", fires()).severity == "warning"
