"""near-limit: live tensors fill the device."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, outcome, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, failure


def job(**more: Any) -> Tables:
    given = {"allocated_bytes": 76 * GIB, "unallocated_bytes": 0, "recoverable_bytes": GIB // 2} | more
    return tables(memory_moments=[failure(**given)])


def fires() -> Tables:
    return job()


def test_says_that_memory_is_full_and_repeats_no_hint() -> None:
    found = finding("near-limit", fires())
    assert "truly full" in found.summary and found.severity == "critical"
    assert "expandable" not in found.fix


def test_a_small_neighbour_is_named_a_large_one_is_another_finding() -> None:
    small = job(other_bytes=4 * GIB, other_largest_bytes=4 * GIB, other_process=77)
    assert "process 77 holds 4.0 GiB" in finding("near-limit", small).summary
    quiet("near-limit", job(other_bytes=4 * GIB + 1))


def test_near_without_a_failure() -> None:
    peak = job(moment="peak", tried_bytes=None, reserved_bytes=77 * GIB, used_bytes=None)
    assert finding("near-limit", peak).severity == "warning"
    quiet("near-limit", job(moment="peak", tried_bytes=None, reserved_bytes=76 * GIB, used_bytes=None))


def test_without_failure_and_size_nothing_is_known() -> None:
    unknown = outcome("near-limit", job(moment="end", capacity_bytes=None))
    assert unknown.status == "skipped" and "size of the device" in unknown.reason


def test_thresholds() -> None:
    turns_exactly_at("near-limit", fires(), min_full_ratio=76 / 80)
