"""oversized-request: no allocator could have found that much."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, failure


def job(**more: Any) -> Tables:
    given = {"tried_bytes": 30 * GIB, "recoverable_bytes": 20 * GIB} | more
    return tables(memory_moments=[failure(**given)])


def fires() -> Tables:
    return job()


def test_says_what_was_there_at_most() -> None:
    found = finding("oversized-request", fires())
    assert found.lost_bytes == 10 * GIB and "20.0 GiB" in found.summary


def test_fitting_exactly_is_fitting() -> None:
    quiet("oversized-request", job(recoverable_bytes=30 * GIB))
    finding("oversized-request", job(recoverable_bytes=30 * GIB - 1))


def test_others_allocators_have_other_rules() -> None:
    quiet("oversized-request", job(allocator="nccl"))


def test_thresholds() -> None:
    turns_exactly_at("oversized-request", fires(), min_request_ratio=30 / 80)
