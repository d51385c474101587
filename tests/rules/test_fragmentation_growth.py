"""fragmentation-growth: the cache grows, what lives does not."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, MIB, growth


def job(**changes: Any) -> Tables:
    given = {"figure": "unallocated", "shape": "growing", "slope_bytes": 100 * MIB, "grown_bytes": 10 * GIB} | changes
    return tables(memory_growth=[growth(), growth(**given)])


def fires() -> Tables:
    return job()


def test_names_both_slopes() -> None:
    found = finding("fragmentation-growth", fires())
    assert found.lost_bytes == 10 * GIB and found.evidence["allocated_slope_bytes"] == 0


def test_not_where_live_memory_grows_faster() -> None:
    rows = [growth(shape="growing", slope_bytes=100 * MIB), fires()["memory_growth"].to_pylist()[1]]
    quiet("fragmentation-growth", tables(memory_growth=rows))


def test_thresholds() -> None:
    turns_exactly_at("fragmentation-growth", fires(), min_grown_ratio=0.2)
