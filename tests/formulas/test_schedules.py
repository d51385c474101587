"""Pipeline formulas with the tutorials' numbers, corrected where they were wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.formulas.schedules import bubble_of_compute_ratio, bubble_of_step_ratio, chunks_in_flight


def test_bubble_of_eight_stages_and_32_micro_batches_is_18_percent_of_the_step() -> None:
    assert bubble_of_step_ratio(8, 32) == pytest.approx(7 / 39)
    assert bubble_of_compute_ratio(8, 32) == pytest.approx(7 / 32)


def test_as_many_micro_batches_as_stages_leave_half_the_step_idle_not_nothing() -> None:
    assert bubble_of_step_ratio(8, 8) == pytest.approx(7 / 15)


def test_interleaving_divides_the_bubble_and_1f1b_does_not() -> None:
    assert bubble_of_compute_ratio(8, 32, chunks=5) == pytest.approx(7 / 32 / 5)
    assert bubble_of_compute_ratio(8, 32, schedule="1f1b") == bubble_of_compute_ratio(8, 32, schedule="gpipe")


def test_1f1b_memory_is_independent_of_the_micro_batches_and_gpipe_is_not() -> None:
    assert chunks_in_flight(8, 0, 32) == chunks_in_flight(8, 0, 128) == 8
    assert chunks_in_flight(8, 7, 32) == 1
    assert chunks_in_flight(8, 0, 32, schedule="gpipe") == 32


@pytest.mark.parametrize(("stages", "chunks"), [(8, 2), (4, 5), (16, 4)])
def test_interleaved_first_stage_holds_the_published_surplus(stages: int, chunks: int) -> None:
    layers_held = chunks_in_flight(stages, 0, 128, chunks, "interleaved") / (stages * chunks)
    assert layers_held == pytest.approx(1 + (stages - 1) / (stages * chunks))


@given(st.integers(2, 64), st.integers(1, 512))
def test_bubble_shrinks_with_micro_batches_and_the_last_stage_holds_least(stages: int, microbatches: int) -> None:
    assert bubble_of_step_ratio(stages, microbatches + 1) < bubble_of_step_ratio(stages, microbatches) < 1
    held = [chunks_in_flight(stages, stage, microbatches) for stage in range(stages)]
    assert held == sorted(held, reverse=True)
    assert held[0] <= microbatches
