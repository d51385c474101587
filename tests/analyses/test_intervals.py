"""Interval algebra against a brute-force sweep over single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses import _intervals as iv

pairs = st.lists(st.tuples(st.integers(-20, 40), st.integers(-3, 15)), max_size=8)
moments = st.lists(st.integers(-30, 70), max_size=8)


def columns(drawn: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(drawn, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 0] + array[:, 1]


def cells(drawn: list[tuple[int, int]]) -> set[int]:
    return {t for start, length in drawn for t in range(start, start + length)}


def cells_of(intervals: np.ndarray) -> set[int]:
    return {t for start, end in intervals.tolist() for t in range(start, end)}


def assert_set(intervals: np.ndarray) -> None:
    assert intervals.dtype == np.int64 and intervals.shape[1] == 2
    assert (intervals[:, 1] > intervals[:, 0]).all()
    assert (intervals[1:, 0] > intervals[:-1, 1]).all()


@given(pairs)
def test_union_covers_the_same_moments(drawn):
    found = iv.union(*columns(drawn))
    assert_set(found)
    assert cells_of(found) == cells(drawn)
    assert iv.total(found) == len(cells(drawn))


@given(pairs, pairs)
def test_set_operations_agree_with_sets_of_moments(one, other):
    a, b = iv.union(*columns(one)), iv.union(*columns(other))
    for found, want in (
        (iv.intersect(a, b), cells(one) & cells(other)),
        (iv.subtract(a, b), cells(one) - cells(other)),
        (iv.merge(a, b), cells(one) | cells(other)),
        (iv.complement(a, -5, 30), set(range(-5, 30)) - cells(one)),
        (iv.clip(a, -5, 30), cells(one) & set(range(-5, 30))),
    ):
        assert_set(found)
        assert cells_of(found) == want


@given(pairs, pairs)
def test_overlap_is_counted_per_row_even_where_rows_overlap(rows, drawn):
    starts, ends = columns(rows)
    found = iv.overlap_with(starts, ends, iv.union(*columns(drawn)))
    covered = cells(drawn)
    assert found.tolist() == [len(covered & set(range(s, e))) for s, e in zip(starts, ends, strict=True)]


@given(pairs, moments)
def test_points_are_inside_exactly_where_a_cell_is(drawn, when):
    a, covered = iv.union(*columns(drawn)), cells(drawn)
    assert iv.contains(a, when).tolist() == [t in covered for t in when]
    assert iv.covered_before(a, when).tolist() == [sum(c < t for c in covered) for t in when]
    assert all(i < 0 or a[i, 0] <= t < a[i, 1] for i, t in zip(iv.index_at(a, when), when, strict=True))


@given(pairs, moments)
def test_splitting_keeps_every_moment_and_cuts_at_each_mark(drawn, when):
    pieces = iv.split_at(iv.union(*columns(drawn)), when)
    assert cells_of(pieces) == cells(drawn)
    assert (pieces[:, 1] > pieces[:, 0]).all() and (pieces[1:, 0] >= pieces[:-1, 1]).all()
    assert not any(s < t < e for s, e in pieces.tolist() for t in when)


@given(st.lists(pairs, max_size=4))
def test_layers_are_disjoint_and_earlier_ones_win(drawn):
    found = iv.layers([iv.union(*columns(d)) for d in drawn])
    taken: set[int] = set()
    for layer, want in zip(found, drawn, strict=True):
        assert cells_of(layer) == cells(want) - taken
        taken |= cells(want)


def test_intervals_that_touch_become_one_and_do_not_overlap():
    assert iv.union([0, 5], [5, 9]).tolist() == [[0, 9]]
    assert iv.overlap_with([5], [9], iv.union([0], [5])).tolist() == [0]


def test_nanoseconds_of_today_keep_their_last_digit():
    epoch = 1_700_000_000_000_000_001
    assert iv.total(iv.union([epoch], [epoch + 1])) == 1
