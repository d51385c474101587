"""Bytes of exchanges with experts and measures of load, against counting by hand and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.formulas import load, moe

COUNTS = st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any)


def test_capacity_rounds_up_and_is_exact() -> None:
    assert moe.capacity(8192, 2, 8, 1.25) == 2560
    assert moe.capacity(100, 2, 8, 1.0) == 25
    assert moe.capacity(101, 2, 8, 1.0) == 26
    assert moe.capacity(10, 1, 10, 1.1) == 2
    assert moe.capacity(1000, 3, 10, 1.1) == 330, "not 331: 330.00000000000006 is rounding"


def test_padding_is_the_capacity_factor_up_to_rounding() -> None:
    assert moe.padding_ratio(8192, 2, 8, 1.25) == 1.25
    assert moe.padding_ratio(100, 1, 64, 1.0) == 1.28, "two rows for each of 64 experts"


@pytest.mark.parametrize(("topk", "experts", "ep"), [(1, 8, 4), (2, 8, 4), (3, 6, 3), (2, 6, 2), (4, 8, 8), (2, 4, 1)])
def test_ranks_per_token_by_enumeration(topk: int, experts: int, ep: int) -> None:
    choices = list(itertools.combinations(range(experts), topk))
    distinct = [len({expert // (experts // ep) for expert in choice}) for choice in choices]
    assert moe.ranks_per_token(topk, experts, ep) == pytest.approx(sum(distinct) / len(choices))


def test_an_exchange() -> None:
    one = moe.exchange(1000, 2, 512, 2.0, 8, 1.25)
    assert one == (1000 * 2 * 512 * 2, 1.25 * 1000 * 2 * 512 * 2, 1.25 * 1000 * 2 * 512 * 2 * 7 / 8)
    assert moe.exchange(1000, 2, 512, 2.0, 1).leaving_bytes == 0


@given(COUNTS)
def test_measures_by_definition(counts: list[int]) -> None:
    rows = np.array([counts], np.float64)
    number, total = len(counts), sum(counts)
    mean = total / number
    assert load.imbalance(rows)[0] == pytest.approx(max(counts) / mean)
    assert load.variation(rows)[0] == pytest.approx(np.sqrt(sum((c - mean) ** 2 for c in counts) / number) / mean)
    pairs = sum(abs(a - b) for a in counts for b in counts)
    assert load.gini(rows)[0] == pytest.approx(pairs / (2 * number * total))
    shares = [c / total for c in counts if c]
    expected = -sum(s * np.log(s) for s in shares) / np.log(number) if number > 1 else 1.0
    assert load.entropy(rows)[0] == pytest.approx(expected, abs=1e-12)


def test_an_even_load_and_everything_on_one() -> None:
    rows = np.array([[5.0, 5, 5, 5], [20, 0, 0, 0], [0, 0, 0, 0]])
    assert load.imbalance(rows)[:2].tolist() == [1, 4] and np.isnan(load.imbalance(rows)[2])
    assert load.entropy(rows)[:2].tolist() == [1, 0] and load.gini(rows)[:2].tolist() == [0, 0.75]


def test_chance_is_about_what_even_routers_show() -> None:
    rng = np.random.default_rng(1)
    for number, mean in ((8, 100), (64, 256), (256, 64)):
        seen = load.imbalance(rng.multinomial(number * mean, np.full(number, 1 / number), 400).astype(float)).mean()
        assert load.chance_imbalance(mean, number) == pytest.approx(seen, rel=0.12)
