"""Replay of a dependency graph: level by level it must say what one operation after the other says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses._dependency_graph import lay_out, replay


def one_by_one(start_of: list[int], pairs: list[tuple[int, int]], durations: list[int]) -> list[int] | None:
    """Ends by repeated sweeps; None for a cycle."""
    count = len(start_of)
    begin = [0] * (max(start_of) + 1)
    for _ in range(count + 1):
        changed = False
        for before, after in pairs:
            end = begin[start_of[before]] + durations[before]
            if end > begin[start_of[after]]:
                begin[start_of[after]], changed = end, True
        if not changed:
            return [begin[s] + d for s, d in zip(start_of, durations, strict=True)]
    return None


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    count = draw(st.integers(1, 12))
    groups = draw(st.lists(st.integers(0, 7), min_size=count, max_size=count))
    start_of = np.unique(groups, return_inverse=True)[1].tolist()
    node = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=20))
    return start_of, pairs, draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))


@given(graphs())
def test_against_one_by_one(graph: tuple[list[int], list[tuple[int, int]], list[int]]) -> None:
    """Ends of every operation, groups and repeated pairs included; a cycle is one for both."""
    start_of, pairs, durations = graph
    before, after = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    layout = lay_out(np.array(start_of), before, after)
    expected = one_by_one(start_of, pairs, durations)

    assert (layout is None) == (expected is None)
    if layout is not None:
        twice = np.stack([np.array(durations, float), np.array(durations) * 2.0], axis=1)
        ends = replay(layout, twice)
        assert ends[:, 0].tolist() == expected
        assert (ends[:, 1] == 2 * ends[:, 0]).all()
