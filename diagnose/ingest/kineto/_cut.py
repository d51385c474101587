"""Where each event of a JSON array starts and ends, found with whole-array operations and no parser.

A candidate start is a `{` behind `}` and `,`. That also matches objects inside lists of `args` and text inside
names; no profiler writes these by habit, so candidates are only weighed by brace depth once a slice did not parse.
Whoever parses the slices must treat one that does not as "cut in the wrong place": see `_scan`. Nothing here is an
error; a wrong cut only costs time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagnose.ingest.kineto._stream import Bytes

Indices = npt.NDArray[np.int64]

Candidates = tuple[Indices, Indices, Indices]

OPEN, CLOSE, COMMA = ord("{"), ord("}"), ord(",")
SPACE = np.zeros(256, np.bool_)
SPACE[[9, 10, 13, 32]] = True

_PATIENCE = 128  # candidates at another depth before that depth counts as the array's own
_LONGEST_GAP = 64  # white space skipped between two tokens; more only costs speed


class Cut(NamedTuple):
    """Slices of a window: `[starts[i], ends[i])` is one event, `rest` the start of what is not sliced."""

    starts: Indices
    ends: Indices
    flat: npt.NDArray[np.bool_]  # the slice holds no nested object
    rest: int


class Cutter:
    """Cuts windows; keeps its scratch memory between calls, since fresh pages cost more than the work."""

    def __init__(self) -> None:
        self._mask = np.zeros(0, np.bool_)
        self._separator: tuple[np.uint64, np.uint64, int] | None = None

    def cut(self, view: Bytes, last: bool, by_depth: bool = True) -> Cut:
        """Slices of a window that begins inside the array, between two events.

        The event at the end of the window is never sliced: it starts at `rest`.
        """
        first = first_token(view)
        if first == len(view) or view[first] != OPEN:
            return _nothing(first)
        opens = self._find(view, OPEN)
        usual = None if by_depth else self._usual(view, opens, first)
        if usual is None or len(view) - usual[0][-1] > len(view) // 8:  # the writer changed its habits
            usual = _candidates(view, opens, first)
        starts, commas, order = usual
        if len(starts) > 1:
            self._learn(view, int(commas[1]), int(starts[1]))
        heads = np.arange(len(starts))
        if by_depth:
            depth = order - np.searchsorted(self._find(view, CLOSE), starts)
            heads = _heads(depth, last) if depth.any() else heads
        chosen = starts[heads]
        return Cut(chosen[:-1], commas[heads[1:]], np.diff(order[heads]) == 1, int(chosen[-1]))

    def _learn(self, view: Bytes, comma: int, start: int) -> None:
        """Remember the bytes from the comma to the `{` of the next event, where they fit a word."""
        text = view[comma : start + 1].tobytes()
        self._separator = None
        if len(text) <= 8:
            word, mask = (np.frombuffer(t.rjust(8, b"\0"), np.uint64)[0] for t in (text, b"\xff" * len(text)))
            self._separator = word, mask, len(text)

    def _usual(self, view: Bytes, opens: Indices, first: int) -> Candidates | None:
        """Candidates behind the separator that the writer used so far; others end up in slices that do not parse."""
        if self._separator is None or len(view) < 8:
            return None
        word, mask, length = self._separator
        words = np.ndarray((len(view) - 7,), np.uint64, view.data, strides=(1,))
        head = int(np.searchsorted(opens, first))
        from_here = max(head + 1, int(np.searchsorted(opens, 8)))
        order = from_here + np.flatnonzero((words[opens[from_here:] - 7] & mask) == word)
        order = order[view[opens[order] - length] == CLOSE]
        starts = opens[order]
        return (
            np.concatenate(([first], starts)),
            np.concatenate(([first], starts - length + 1)),
            np.concatenate(([0], order - head)),
        )

    def _find(self, view: Bytes, byte: int) -> Indices:
        if len(self._mask) < len(view):
            self._mask = np.zeros(len(view), np.bool_)
        mask = self._mask[: len(view)]
        np.equal(view, byte, out=mask)
        return np.flatnonzero(mask)


def first_token(view: Bytes) -> int:
    """Position of the first byte that is neither space nor comma; the length where there is none."""
    for start in range(0, len(view), 4096):
        part = view[start : start + 4096]
        found = np.flatnonzero(~SPACE[part] & (part != COMMA))
        if len(found):
            return start + int(found[0])
    return len(view)


def _nothing(rest: int) -> Cut:
    none = np.zeros(0, np.int64)
    return Cut(none, none, np.zeros(0, np.bool_), rest)


def _candidates(view: Bytes, opens: Indices, first: int) -> Candidates:
    """Start, position of the comma before it, and number of earlier `{` for each candidate."""
    order = np.flatnonzero(opens > first)
    before = _previous(view, opens[order] - 1)
    follows = view[before] == COMMA
    order, commas = order[follows], before[follows]
    follows = view[_previous(view, commas - 1)] == CLOSE
    order, commas = order[follows], commas[follows]
    head = np.searchsorted(opens, first)
    order = np.concatenate(([head], order))
    return opens[order], np.concatenate(([first], commas)), order - head


def _previous(view: Bytes, at: Indices) -> Indices:
    """The last position at or before each of `at` that is not white space."""
    at = at.copy()
    todo = np.arange(len(at))
    for _ in range(_LONGEST_GAP):
        todo = todo[SPACE[view[at[todo]]]]
        if not len(todo):
            break
        at[todo] -= 1
    return np.maximum(at, 0)


def _heads(depth: Indices, last: bool) -> Indices:
    """Candidates at the depth of the array.

    A list of objects inside an event leaves that depth and comes back. A brace inside a text leaves it for
    good: after `_PATIENCE` candidates the new depth is believed.
    """
    kept: list[Indices] = []
    level, at, count = 0, 0, len(depth)
    turns = np.flatnonzero(np.diff(depth)) + 1
    while at < count:
        stop = _leaves(depth, turns, at, level)
        kept.append(np.arange(at, stop))
        if stop == count:
            break
        back = np.flatnonzero(depth[stop : stop + _PATIENCE] == level)
        if len(back):
            at = stop + int(back[0])
        elif stop + _PATIENCE > count and not last:
            break
        else:
            level, at = int(depth[stop]), stop
    return np.concatenate(kept)


def _leaves(depth: Indices, turns: Indices, at: int, level: int) -> int:
    """First candidate from `at` on that is not at `level`."""
    if depth[at] != level:
        return at
    turn = np.searchsorted(turns, at, side="right")
    return int(turns[turn]) if turn < len(turns) else len(depth)
