"""Life times of allocations: drawn histories, cut ones, and any history against an allocator played step by step."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses import _replay

KIB = 1024
Event = tuple[str, int, int]  # what, address, size


def replayed(events: list[Event], blocks: dict[int, int], ended: bool = True) -> _replay.Lives:
    what = np.array([e[0] for e in events])
    return _replay.lives(
        what == "alloc",
        what == "free",
        np.array([e[1] for e in events], dtype=np.uint64),
        np.array([e[2] for e in events], dtype=np.int64),
        np.array(list(blocks), dtype=np.uint64),
        np.array(list(blocks.values()), dtype=np.int64),
        ended,
    )


def spans(found: _replay.Lives) -> list[tuple[int, int, int]]:
    rows = zip(found.address.tolist(), found.start.tolist(), found.end.tolist(), strict=True)
    return sorted((a, s, e) for a, s, e in rows)


def test_made_and_freed() -> None:
    found = replayed([("alloc", 8, KIB), ("alloc", 64, KIB), ("free", 8, KIB)], {64: 2 * KIB})
    assert spans(found) == [(8, 0, 2), (64, 1, 3)]
    assert found.size.tolist() == [KIB, 2 * KIB], "the end block knows the rounded size"
    assert _replay.totals(found, 3).tolist() == [0, KIB, 3 * KIB, 2 * KIB]


def test_what_is_older_than_the_history() -> None:
    found = replayed([("free", 8, KIB)], {64: KIB})
    assert spans(found) == [(8, -1, 0), (64, -1, 1)]
    assert _replay.totals(found, 1).tolist() == [2 * KIB, KIB]


def test_requested_sizes_are_rounded_up() -> None:
    assert _replay.rounded(np.array([0, 1, 512, 700])).tolist() == [0, 512, 512, 1024]


def test_a_lost_free_between_two_allocations() -> None:
    found = replayed([("free", 8, KIB), ("alloc", 8, KIB), ("alloc", 8, KIB)], {8: KIB, 64: 4 * KIB})
    assert _replay.totals(found, 3).tolist() == [5 * KIB, 4 * KIB, 5 * KIB, 5 * KIB]


def test_a_lost_allocation_is_alive_after_the_last_free() -> None:
    found = replayed([("alloc", 8, KIB), ("free", 8, KIB)], {8: KIB})
    assert spans(found) == [(8, 0, 1), (8, 1, 2)]


def test_the_end_state_is_the_truth() -> None:
    history = [("alloc", 8, KIB), ("alloc", 64, KIB)]
    assert _replay.totals(replayed(history, {64: KIB}), 2).tolist()[-1] == KIB
    assert _replay.totals(replayed(history, {}, ended=False), 2).tolist()[-1] == 2 * KIB


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], list[int]]:
    """A whole history of an allocator with few addresses, and the bytes alive after each event."""
    alive: dict[int, int] = {}
    events: list[Event] = []
    totals = [0]
    for address in draw(st.lists(st.integers(1, 6), max_size=40)):
        if address in alive:
            events.append(("free", address, alive.pop(address)))
        else:
            alive[address] = draw(st.integers(1, 4)) * KIB
            events.append(("alloc", address, alive[address]))
        totals.append(sum(alive.values()))
    return events, totals


@given(histories(), st.data())
def test_any_cut_of_any_history_gives_back_its_states(
    history: tuple[list[Event], list[int]], data: st.DataObject
) -> None:
    events, totals = history
    cut = data.draw(st.integers(0, len(events)))
    alive: dict[int, int] = {}
    for what, address, size in events:
        if what == "alloc":
            alive[address] = size
        else:
            del alive[address]
    found = replayed(events[cut:], alive)
    assert _replay.totals(found, len(events) - cut).tolist() == totals[cut:]


@given(st.lists(st.tuples(st.sampled_from(["alloc", "free"]), st.integers(1, 5), st.integers(1, 4 * KIB)), max_size=40),
       st.dictionaries(st.integers(1, 8), st.integers(1, 4).map(lambda n: n * KIB), max_size=5))  # fmt: skip
def test_no_nonsense_goes_below_zero_or_away_from_the_end(events: list[Event], blocks: dict[int, int]) -> None:
    states = _replay.totals(replayed(events, blocks), len(events))
    assert (states >= 0).all()
    assert states[-1] == sum(blocks.values())
