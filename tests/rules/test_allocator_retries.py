"""allocator-retries: cache flushes."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at


def fires() -> Tables:
    return tables(
        log_events=[{"kind": "allocator_flushes", "count": 12, "detail": "12 allocator cache flushes in 10 warnings"}]
    )


def test_counts_flushes_and_warnings() -> None:
    found = finding("allocator-retries", fires())
    assert found.evidence["flushes_count"] == 12 and "10 warnings" in found.summary


def test_other_messages_are_none() -> None:
    quiet("allocator-retries", tables(log_events=[{"kind": "socket", "count": 90, "detail": "x"}]))


def test_thresholds() -> None:
    turns_exactly_at("allocator-retries", fires(), min_flush_count=12)
