"""Level, drift, step, bump: told from noise, warm-up, stalls and ramps; against brute force and on drawn series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analyses import _shapes_of_series as shapes
from diagnose.analyses._steady import period, steady

Floats = shapes.Floats


def noise(seed: int, count: int, size: float, memory: float = 0.0) -> Floats:
    """Heavy-tailed (Student's t with 4 degrees), each value with some memory of the one before."""
    drawn = np.random.default_rng(seed).standard_t(4, count)
    for at in range(1, count):
        drawn[at] += memory * drawn[at - 1]
    return size * drawn


@pytest.mark.parametrize("memory", [0.0, 0.5])
@pytest.mark.parametrize("size", [0.0, 0.002, 0.05])
def test_stationary_noise_is_level(size: float, memory: float) -> None:
    found = [shapes.shape(100 * (1 + noise(seed, 1500, size, memory))).name for seed in range(40)]

    assert found.count("level") >= 40 - (size > 0) * 1


@pytest.mark.parametrize("loss", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("at", [300, 700, 1200])
def test_a_step_is_found_where_it_is(loss: float, at: int) -> None:
    value = 100 * (1 + noise(at, 1500, 0.004)) * np.where(np.arange(1500) >= at, 1 + loss, 1.0)

    found = shapes.shape(value)

    assert found.name == "step" and abs(found.first - at) <= 8
    assert found.late / found.early - 1 == pytest.approx(loss, abs=0.003)


@pytest.mark.parametrize("loss", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("start", [0, 600])
def test_a_ramp_is_a_drift_from_where_it_begins(loss: float, start: int) -> None:
    ramp = np.clip((np.arange(1500) - start) / (1500 - start), 0, 1)

    found = shapes.shape(100 * (1 + noise(start, 1500, 0.004)) * (1 + loss * ramp))

    assert found.name == "drift" and abs(found.first - start) <= 150
    assert found.slope * (1500 - start) / 100 == pytest.approx(loss, rel=0.15)


def test_a_bump_begins_and_ends() -> None:
    inside = (np.arange(1500) >= 500) & (np.arange(1500) < 800)

    found = shapes.shape(100 * (1 + noise(3, 1500, 0.004)) * np.where(inside, 1.1, 1.0))

    assert found.name == "bump" and abs(found.first - 500) <= 8 and abs(found.last - 800) <= 8


@given(st.lists(st.floats(-1000, 1000), min_size=4, max_size=24))
def test_two_levels_against_brute_force(values: list[float]) -> None:
    middle = np.array(values)

    left = shapes._two_levels(middle)

    for at in range(1, len(middle)):
        expected = sum(float(np.sum((part - part.mean()) ** 2)) for part in (middle[:at], middle[at:]))
        assert left[at - 1] == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.floats(-1000, 1000), min_size=8, max_size=14))
def test_bump_against_brute_force(values: list[float]) -> None:
    middle, number = np.array(values), len(values)
    expected = min(
        float(np.sum((middle[a:b] - middle[a:b].mean()) ** 2))
        + float(np.sum((np.delete(middle, slice(a, b)) - np.delete(middle, slice(a, b)).mean()) ** 2))
        for a in range(1, number)
        for b in range(a + 2, number - 1)
    )

    assert shapes._bump(middle)[1] == pytest.approx(expected, abs=1e-4)


@settings(deadline=None)
@given(st.floats(1e-6, 1e15), st.floats(-0.2, 0.5), st.integers(1, 3))
def test_scale_does_not_matter(scale: float, loss: float, seed: int) -> None:
    value = (1 + noise(seed, 400, 0.01)) * np.where(np.arange(400) >= 200, 1 + loss, 1.0)

    one, other = shapes.shape(value), shapes.shape(value * scale)

    assert one.name == other.name
    assert other.early == pytest.approx(one.early * scale)


def test_what_is_zero_at_first_and_exactly_one_later_is_a_step() -> None:
    """Flags such as throttle reasons: nothing is left over by the model, and the median is zero."""
    found = shapes.shape(np.repeat([0.0, 1.0], [300, 200]))

    assert (found.name, found.first, found.early, found.late) == ("step", 300, 0.0, 1.0)


def test_few_values_are_short_whatever_they_show() -> None:
    assert shapes.shape(np.concatenate([np.ones(15), np.full(16, 2.0)])).name == "short"
    assert shapes.shape(np.concatenate([np.ones(16), np.full(16, 2.0)])).name == "step"
    assert shapes.shape(np.zeros(0)).name == "short"


def test_warm_up_and_stalls_are_left_out() -> None:
    value = 100 * (1 + noise(1, 800, 0.003))
    value[:7] *= np.linspace(30, 2, 7)
    value[[200, 431]] += 500

    found = steady(value)

    assert np.flatnonzero(found.warm_up).tolist() == list(range(7))
    assert np.flatnonzero(found.stall).tolist() == [200, 431]
    assert found.excess[200] == pytest.approx(500, rel=0.02)
    assert shapes.shape(value[found.kept]).name == "level"


@pytest.mark.parametrize("at", [0, 40, 118, 119])
def test_a_stall_counts_wherever_it_stands(at: int) -> None:
    value = np.full(120, 1.4)
    value[at] = 361.4

    found = steady(value)

    assert np.flatnonzero(found.stall | found.warm_up).tolist() == [at]


def test_a_run_that_is_slow_from_the_start_has_no_warm_up() -> None:
    assert not steady(np.full(500, 3.0)).warm_up.any()
    assert not steady(np.concatenate([np.full(250, 3.0), np.full(250, 3.6)])).warm_up.any()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([40, 80, 120], 40),
        ([39, 79, 119, 199], 40),  # one was missed
        ([100, 200, 301, 400, 500], 100),
        ([11, 42, 73, 104, 135, 166, 197], 31),
        ([10, 40], None),
        ([10, 55, 70, 190, 205], None),
        ([5, 6, 7, 8], None),  # neighbours are one long stall
    ],
)
def test_period(steps: list[int], expected: int | None) -> None:
    found = period(np.array(steps))
    assert (None if found is None else found[0]) == expected


def test_strays_between_periodic_stalls_do_not_hide_them() -> None:
    found = period(np.array(sorted([*range(182, 1500, 182), 700])))

    assert found is not None and found[0] == 182 and found[1].sum() == 8


@given(st.lists(st.integers(0, 3000), min_size=3, max_size=6, unique=True), st.randoms())
def test_a_period_holds_for_the_steps_it_is_said_of(steps: list[int], _: object) -> None:
    ordered = np.array(sorted(steps))
    found = period(ordered)

    if found is not None:
        times = np.diff(ordered[found[1]]) / found[0]
        assert np.mean(np.abs(times - np.rint(times)) <= 0.11 * np.rint(times).clip(1)) >= 0.7
