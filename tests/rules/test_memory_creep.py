"""memory-creep: live tensors that nobody frees."""

from __future__ import annotations

from typing import Any

import numpy as np

from diagnose.analyses.memory_growth import memory_growth
from diagnose.schema import INGESTED, Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, MIB, growth


def job(*more: Any, **changes: Any) -> Tables:
    given = {"shape": "growing", "slope_bytes": 100 * MIB, "grown_bytes": 10 * GIB, "last_bytes": 50 * GIB} | changes
    return tables(memory_growth=[growth(**given), *more])


def place(size: int, rank: int = 0) -> dict[str, Any]:
    return {"rank": rank, "figure": "place", "place": "train.py:88 total", "shape": "growing", "slope_bytes": size,
            "steps_count": 30, "grown_bytes": 30 * size}  # fmt: skip


def fires() -> Tables:
    return job(place(100 * MIB))


def test_names_slope_and_line() -> None:
    found = finding("memory-creep", fires())
    assert found.evidence["slope_bytes"] == 100 * MIB and "train.py:88 total" in found.summary
    assert "detach" in found.fix


def test_a_place_of_another_size_or_rank_is_not_blamed() -> None:
    finding_of = finding("memory-creep", job(place(126 * MIB)))
    assert "train.py" not in finding_of.summary
    assert "train.py" in finding("memory-creep", job(place(125 * MIB))).summary
    assert "train.py" not in finding("memory-creep", job(place(100 * MIB, rank=1))).summary
    assert "train.py" in finding("memory-creep", job(place(100 * MIB, rank=-1))).summary


def test_predicts_when_the_device_is_full() -> None:
    assert "about 42 steps" in finding("memory-creep", job(left_count=42)).summary


def test_memory_of_the_host_is_called_so_and_blames_no_place_on_the_gpu() -> None:
    found = finding("memory-creep", job(place(100 * MIB), figure="host"))
    assert "rank 0: resident memory of the process grows" in found.summary and "train.py" not in found.summary


def test_quiet_on_jumps() -> None:
    quiet("memory-creep", job(shape="jump"))


def test_thresholds() -> None:
    turns_exactly_at("memory-creep", fires(), min_grown_ratio=0.2)


def test_one_deep_dip_is_no_growth() -> None:
    """Stationary memory whose first stretch happens to hold the deepest value: its floor alone is low."""
    drawn = np.random.default_rng(3).standard_t(4, 800) * 0.002
    value = 40.0 * (1 + drawn)
    value[100] *= 0.95
    rows = {"step": list(range(800)), "metric": ["memory_allocated_gib"] * 800, "value": value}

    (found,) = memory_growth(series=INGESTED["series"].build(rows)).to_pylist()
    (leaks,) = memory_growth(
        series=INGESTED["series"].build(rows | {"value": value + np.linspace(0, 4, 800)})
    ).to_pylist()

    assert (found["shape"], leaks["shape"]) == ("flat", "growing")
