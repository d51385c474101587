"""The hook turns itself down above its budget and up again, and measures itself in turns."""

from __future__ import annotations

import numpy as np

from diagnose.live._budget import MOST_EVERY, WINDOW_STEPS, Budget
from diagnose.live._overhead import Overhead
from diagnose.live.interval import of_blocks


def windows(budget: Budget, count: int, hook_ns: int, step_ns: int = 20_000_000) -> None:
    for _ in range(count * WINDOW_STEPS):
        budget.add(hook_ns, step_ns)


def test_exactly_the_budget_is_within_it() -> None:
    budget = Budget(0.005)
    windows(budget, 3, 100_000)
    assert (budget.probe_every, budget.record_every) == (1, 1)
    windows(budget, 1, 100_001)
    assert budget.probe_every == 2


def test_far_above_it_figures_go_first_then_records() -> None:
    budget = Budget(0.005)
    windows(budget, 20, 2_000_000)

    assert budget.probe_every == MOST_EVERY
    assert budget.record_every > 1


def test_it_comes_back_when_there_is_room() -> None:
    budget = Budget(0.005)
    windows(budget, 20, 2_000_000)
    windows(budget, 60, 1_000)

    assert (budget.probe_every, budget.record_every) == (1, 1)


def test_blocks_take_turns_and_end() -> None:
    overhead, switched = Overhead(), []
    overhead.start(3, 4, switched.append)
    steps = 0
    while overhead.running:
        overhead.step_ended(100 + (0 if overhead.muted else 10))
        steps += 1

    assert overhead.blocks() == [110, 100, 110, 100, 110, 100]
    assert switched == [True, False, True, False, True, False]
    assert steps == 6 * 5


def test_the_interval_holds_the_true_cost_in_noise_and_drift() -> None:
    random = np.random.default_rng(1)
    drift = np.linspace(1.0, 1.5, 400)
    blocks = [20e6 * d * (1.004 if n % 2 == 0 else 1.0) * random.normal(1, 0.01) for n, d in enumerate(drift)]

    found = of_blocks([round(b) for b in blocks])

    assert found is not None
    assert found.low_ratio < 0.004 < found.high_ratio
    assert found.high_ratio - found.low_ratio < 0.01


def test_few_pairs_say_nothing() -> None:
    assert of_blocks([100] * 10) is None
    assert of_blocks([]) is None
