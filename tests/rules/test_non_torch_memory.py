"""non-torch-memory: neighbours, context and NCCL."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, MIB, failure


def job(**more: Any) -> Tables:
    return tables(memory_moments=[failure(**more)])


def fires() -> Tables:
    return job(other_bytes=50 * GIB, other_largest_bytes=40 * GIB, other_process=77, recoverable_bytes=0)


def test_names_the_largest_neighbour() -> None:
    found = finding("non-torch-memory", fires())
    assert "(77) holds 40.0 GiB" in found.summary
    assert (found.severity, found.lost_bytes) == ("critical", 50 * GIB)


def test_a_neighbour_that_made_no_difference_is_a_note() -> None:
    small = job(other_bytes=GIB, other_largest_bytes=GIB, other_process=7, tried_bytes=9 * GIB, recoverable_bytes=0)
    assert finding("non-torch-memory", small).severity == "info"
    quiet("non-torch-memory", job(other_bytes=255 * MIB, other_largest_bytes=255 * MIB, other_process=7))


def test_own_memory_outside_the_allocator() -> None:
    assert "outside the allocator" in finding("non-torch-memory", job(non_torch_bytes=8 * GIB + 1)).summary
    quiet("non-torch-memory", job(non_torch_bytes=8 * GIB))


def test_nccl_failed_while_pytorch_holds_a_cache() -> None:
    found = finding("non-torch-memory", job(allocator="nccl", tried_bytes=10 * MIB))
    assert "NCCL asks the device itself" in found.summary and "memory_fraction" in found.fix
    assert "expandable" not in found.fix


def test_the_async_pool_is_not_somebody_elses() -> None:
    quiet("non-torch-memory", job(allocator="cudaMallocAsync", unaccounted_bytes=30 * GIB))


def test_thresholds() -> None:
    turns_exactly_at("non-torch-memory", job(non_torch_bytes=10 * GIB), min_held_ratio=10 / 80)
