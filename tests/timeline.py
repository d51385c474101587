"""Timelines as text: tests draw what ran when, one column a millisecond.

    compute |aabb..cc|
    comm    |..nnn...|

Every run of one letter is one interval; `.` and space are nothing. The lane's name is all text before the bar.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

COLUMN_NS = 1_000_000


class Span(NamedTuple):
    """A drawn interval."""

    lane: str
    letter: str
    ts_ns: int
    dur_ns: int


def spans(text: str, column_ns: int = COLUMN_NS) -> list[Span]:
    """Intervals of the drawing, in order of lanes, then of time."""
    found = []
    for line in filter(None, (row.strip() for row in text.splitlines())):
        lane, bar, drawing = line.partition("|")
        assert bar and drawing.endswith("|"), f"not a lane: {line!r}"
        column = 0
        for letter, run in groupby(drawing[:-1]):
            width = len(list(run))
            if letter not in ". ":
                found.append(Span(lane.strip(), letter, column * column_ns, width * column_ns))
            column += width
    return found
