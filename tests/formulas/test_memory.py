"""State and activation bytes against the papers' own figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.formulas.memory import gpt_activation_bytes, shard, state_bytes


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120.0), (1, 31.41), (2, 16.64), (3, 1.88)])
def test_zero_paper_figure_1(zero: int, gigabytes: float) -> None:
    """7.5 billion parameters on 64 ranks, 16 bytes each before sharding."""
    state = state_bytes("fp16", "fp16", "adam")
    assert 7.5 * shard(state, zero, 64).total == pytest.approx(gigabytes, abs=0.01)


def test_sixteen_bytes_hold_no_activations_and_fp32_gradients_make_eighteen() -> None:
    assert state_bytes("bf16", "bf16", "adam").total == 16
    assert state_bytes("bf16", "fp32", "adam").total == 18
    assert state_bytes("bf16", "fp32", "adam", accumulator_bytes=2).total == 20
    assert state_bytes("fp32", "fp32", "adam").total == 16
    assert state_bytes("bf16", "bf16", "adam8bit").total == 10


def test_activations_of_one_layer_korthikanti_equations() -> None:
    s, b, h, a, t = 2048, 1, 12288, 96, 8
    base = s * b * h
    assert gpt_activation_bytes(s, b, h, a) == base * (34 + 5 * a * s / h)
    assert gpt_activation_bytes(s, b, h, a, t) == base * (10 + 24 / t + 5 * a * s / (h * t))
    assert gpt_activation_bytes(s, b, h, a, t, sp=True) == base / t * (34 + 5 * a * s / h)
    assert gpt_activation_bytes(s, b, h, a, t, sp=True, recompute="selective") == 34 * base / t
    assert gpt_activation_bytes(s, b, h, a, t, recompute="full") == 2 * base


def test_attention_scores_are_the_only_part_quadratic_in_the_sequence() -> None:
    short, long = (gpt_activation_bytes(s, 1, 4096, 32, recompute="selective") for s in (2048, 4096))
    assert long == 2 * short


@given(st.sampled_from(["bf16", "fp16", "fp32"]), st.sampled_from(["fp32", "bf16"]), st.integers(1, 512))
def test_more_sharding_never_costs_state(precision: str, grads: str, ranks: int) -> None:
    state = state_bytes(precision, grads, "adam")
    totals = [shard(state, zero, ranks).total for zero in (0, 1, 2, 3)]
    assert totals == sorted(totals, reverse=True)
    assert totals[3] == pytest.approx(state.total / ranks)
