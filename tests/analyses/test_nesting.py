"""Innermost open interval: against brute force, crossings and ties included."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses._nesting import Nesting

INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=25)
MOMENTS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-2, 45)), min_size=1, max_size=20)


def columns(tuples, width):
    return np.array(tuples, dtype=np.int64).reshape(-1, width).T.copy()


def brute_force(intervals, thread, moment):
    open_now = [
        (start, -(start + length), row)
        for row, (where, start, length) in enumerate(intervals)
        if where == thread and start <= moment < start + length
    ]
    return max(open_now, default=(None, None, -1))[2]


@given(INTERVALS, MOMENTS)
def test_equals_brute_force(intervals, moments):
    thread, starts, lengths = columns(intervals, 3)
    where, when = columns(moments, 2)
    nesting = Nesting(thread, starts, starts + lengths, np.arange(len(thread)))

    found = nesting.innermost(where, when)

    assert found.tolist() == [brute_force(intervals, *moment) for moment in moments]
    begun = nesting.started_ns(where, when)
    assert [b for b, f in zip(begun, found, strict=True) if f >= 0] == [intervals[f][1] for f in found if f >= 0]


def test_deep_stack_and_many_siblings():
    depth, siblings = 300, 2000
    starts = np.concatenate([np.arange(depth), depth + np.arange(siblings) * 2])
    ends = np.concatenate([10_000 - np.arange(depth), depth + np.arange(siblings) * 2 + 1])
    nesting = Nesting(np.zeros(len(starts), np.int64), starts, ends, np.arange(len(starts)))

    found = nesting.innermost(np.zeros(3, np.int64), np.array([depth + 100, depth + 101, 9_900]))

    assert found.tolist() == [depth + 50, depth - 1, 99]


def test_large_times_do_not_mix_threads():
    far = 2**62
    nesting = Nesting(np.array([0, 1]), np.array([-far, far]), np.array([-far + 5, far + 5]), np.array([7, 8]))

    assert nesting.innermost(np.array([0, 1, 1]), np.array([-far + 1, far + 1, -far + 1])).tolist() == [7, 8, -1]
