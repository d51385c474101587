"""low-bus-bandwidth: only measured transfer, only against an expectation with a source."""

from __future__ import annotations

import pytest

from tests.rules.build import MIB, MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def expectation(ratio=0.25, **more):
    return {
        "group": "g",
        "dim": "dp",
        "op": "all_reduce",
        "size_bytes": 64 * MIB,
        "ranks_count": 8,
        "link": "inside a node",
        "busbw_bytes_per_s": 90e9,
        "expected_busbw_bytes_per_s": 360e9,
        "of_expected_ratio": ratio,
        "expected_ns": 4 * MS,
        "source": "formulas",
        **more,
    }


def job(*expected, **more):
    """A step of 100 ms; rank 0 waits for 14 of 30 ms; the transfer of 16 ms should take 4."""
    always = {"group": "g", "size_bytes": 64 * MIB}
    rows = [
        call("all_reduce", 30 * MS, **always, wait_ns=14 * MS, transfer_ns=16 * MS, exposed_wait_ns=14 * MS),
        call("all_reduce", 16 * MS, **always, rank=1, wait_ns=0, transfer_ns=16 * MS, exposed_wait_ns=0),
    ]
    made = [step(rank=r, compute_ns=(70, 84)[r] * MS, comm_ns=16 * MS, wait_ns=(14, 0)[r] * MS) for r in (0, 1)]
    return tables(link_expectations=list(expected), collectives=rows, spans=spans(*made), **more)


def fires():
    return job(expectation())


def test_fires_on_slow_transfer_and_counts_what_healthy_links_would_save():
    found = finding("low-bus-bandwidth", fires())
    assert found.lost_ns == 12 * MS
    assert found.evidence["source"] == "formulas" and "without waiting" in found.summary


def test_quiet_near_the_expectation_and_on_small_messages():
    quiet("low-bus-bandwidth", job(expectation(ratio=0.8)))
    quiet("low-bus-bandwidth", job(expectation(size_bytes=64 * 1024)))


@pytest.mark.parametrize("rows", [[], [expectation(ratio=None)]])
def test_skipped_without_an_expectation(rows):
    assert outcome("low-bus-bandwidth", job(*rows)).status == "skipped"


def test_exactly_at_each_threshold():
    turns_exactly_at("low-bus-bandwidth", fires(), min_share_ratio=0.12, min_size_bytes=64 * MIB)
    quiet("low-bus-bandwidth", fires(), min_slowdown_ratio=4.0)
    assert finding("low-bus-bandwidth", fires(), min_slowdown_ratio=3.99).lost_ns == 12 * MS
