"""Lateness that a rank only passes on: it was held up in its previous call by somebody else.

A rank that waited for a late peer comes late to its next call, too, if that call is with other ranks: with ranks that
were in the previous call they all were let go together, so nothing is inherited between them. What is inherited is
nobody's fault in the later call, and counting it again would count one delay once per group it travels through.

Method: per call, the previous call of the rank that came last; the second last rank is looked up among its members.
"""

from __future__ import annotations

import numpy as np

from diagnose.analyses._arrivals import Arrival
from diagnose.analyses._columns import Flags, Ints, take

PASSED_ON_RATIO = 0.5
"""At least this part of the lateness must be the waiting before; a guess."""


def inherited(seen: Arrival, rank: Ints, usable: Flags, last: Ints, second: Ints) -> Flags:
    """Per call, whether its lateness was passed on. `last` and `second` are rows of the last and second last rank."""
    rows = np.flatnonzero(usable)
    order = rows[np.lexsort((seen.start_ns[rows], rank[rows]))]
    previous = np.full(len(rank), -1, np.int64)
    same = rank[order[1:]] == rank[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    before = previous[last]
    waited = take(seen.last_ns - seen.start_ns, before, 0)
    late = seen.start_ns[last] - seen.start_ns[second]
    held_up = (before >= 0) & (waited >= PASSED_ON_RATIO * late) & (waited > take(seen.error_ns, before, 0))
    width = int(rank.max(initial=0)) + 1
    there = np.isin(take(seen.match, before, -1) * width + rank[second], seen.match[rows] * width + rank[rows])
    result: Flags = held_up & ~there
    return result
