"""allocator-settings: fractions, rounding, the asynchronous pool."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, failure


def job(**more: Any) -> Tables:
    return tables(memory_moments=[failure(**more)])


def fires() -> Tables:
    return job(allocator="cudaMallocAsync", unaccounted_bytes=25 * GIB)


def test_the_async_backend_hides_memory_from_snapshots() -> None:
    found = finding("allocator-settings", fires())
    assert found.lost_bytes == 25 * GIB and "backend:native" in found.fix and "do not cover" in found.summary


def test_a_memory_fraction() -> None:
    assert "fraction" in finding("allocator-settings", job(limit_bytes=40 * GIB)).summary
    quiet("allocator-settings", job(limit_bytes=72 * GIB))


def test_rounding() -> None:
    assert "rounding" in finding("allocator-settings", job(internal_bytes=6 * GIB + 1)).summary
    quiet("allocator-settings", job(internal_bytes=6 * GIB))


def test_thresholds() -> None:
    turns_exactly_at("allocator-settings", fires(), min_cost_ratio=25 / 80)
