"""Who came last in every call that ranks share, by how much, and what that made the others wait.

`late_ns` is the start of the last rank minus the start of the second last: what the call would gain if only this rank
came earlier. `waited_ns` is all that the others waited for it together: time waited, not time caused. What is below
`error_ns` (the clocks) says nothing, and `last_rank` is null there. Calls whose group was not wholly recorded count,
marked: a rank that is not here may have been later still. `inherited` lateness is passed on from a rank that held this
one up in another group; it is shown, and blamed on nobody a second time. Between stages of a pipeline it is the
schedule's: stages drain one after the other, and the one that drains last did nothing wrong.

Method: starts on comparable clocks (`_arrivals`), the two largest per call.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._arrivals import Arrival, arrivals_of
from diagnose.analyses._columns import Flags, Ints, integers
from diagnose.analyses._inherited import inherited
from diagnose.analyses._instances import Runs, runs
from diagnose.analyses._pipeline_places import pipeline_places
from diagnose.schema import BOOL, INT32, INT64, LABEL, table

SCHEMA = table(
    "call that at least two ranks share, on clocks that can be compared",
    ("match", INT64, "call instance, as in collectives"),
    ("step", INT64, "step on the last rank; null outside"),
    ("group", LABEL, "process group name"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("op", LABEL, "normalised operation"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("ranks_count", INT32, "ranks seen in it"),
    ("complete", BOOL, "no rank of the group is missing"),
    ("ts_ns", INT64, "start of the last rank, on the reference's clock"),
    ("last_rank", INT32, "who came last; null where the clocks cannot tell"),
    (
        "inherited",
        BOOL,
        "the last rank was held up by another one in its call before, in a group without the second last; or the last "
        "two are different stages of a pipeline, which come in turn",
    ),
    ("late_ns", INT64, "start of the last minus start of the second last"),
    ("spread_ns", INT64, "start of the last minus start of the first"),
    ("waited_ns", INT64, "waiting of all others together"),
    ("exposed_late_ns", INT64, "of late_ns, what the rank that waited longest could not hide under compute"),
    ("end_spread_ns", INT64, "last end minus first end: clock error and unequal exits"),
    ("error_ns", INT64, "error of the clocks involved"),
)


def arrivals(
    calls_on_device: pa.Table,
    matches: pa.Table,
    clocks: pa.Table,
    collectives: pa.Table,
    groups: pa.Table | None = None,
) -> pa.Table:
    """One row per shared call, in order of time."""
    if not calls_on_device.num_rows:
        return SCHEMA.empty()
    seen = arrivals_of(calls_on_device, matches, clocks)
    rows = np.flatnonzero(seen.comparable & seen.synchronising)
    if not len(rows):
        return SCHEMA.empty()
    of = runs(seen.match[rows], seen.start_ns[rows])
    ordered = rows[of.order]
    heads, tails = of.first, of.first + of.size_of - 1
    last, second, first = ordered[tails], ordered[tails - 1], ordered[heads]
    start, rank = seen.start_ns, integers(calls_on_device["rank"])
    usable = seen.comparable & (seen.synchronising | seen.paired)
    late, error = start[last] - start[second], seen.error_ns[last]
    return SCHEMA.build(
        {
            **{c: calls_on_device[c].take(last) for c in ("step", "group", "dim", "op", "size_bytes")},
            "match": seen.match[last],
            "ranks_count": of.size_of,
            "complete": seen.complete[last],
            "ts_ns": start[last],
            "last_rank": np.ma.array(rank[last], mask=late <= error),
            "inherited": inherited(seen, rank, usable, last, second) | _in_turn(rank[last], rank[second], groups),
            "late_ns": late,
            "spread_ns": start[last] - start[first],
            "waited_ns": _waited(seen, ordered, of),
            "exposed_late_ns": np.minimum(late, _exposed(collectives, ordered, of)),
            "end_spread_ns": _spread(seen.end_ns[ordered], of),
            "error_ns": error,
        }
    ).sort_by("ts_ns")


def _in_turn(last: Ints, second: Ints, groups: pa.Table | None) -> Flags:
    """Whether two ranks are different stages of a pipeline."""
    places = pipeline_places(groups)
    stage = [
        np.array([places[r][0] if r in places else -1 for r in ranks.tolist()], np.int64) for ranks in (last, second)
    ]
    return np.asarray((stage[0] != stage[1]) & (stage[0] >= 0) & (stage[1] >= 0), bool)


def _waited(seen: Arrival, ordered: Ints, of: Runs) -> Ints:
    length = seen.end_ns - seen.start_ns
    wait = np.clip(seen.last_ns - seen.start_ns, 0, length)
    return np.asarray(np.add.reduceat(wait[ordered], of.first), np.int64)


def _exposed(collectives: pa.Table, ordered: Ints, of: Runs) -> Ints:
    """Largest exposed waiting of a rank per call; where waiting is not split, the largest exposed time."""
    wait = integers(collectives["exposed_wait_ns"], -1)
    exposed = np.where(wait >= 0, wait, integers(collectives["exposed_ns"]))
    return np.asarray(np.maximum.reduceat(exposed[ordered], of.first), np.int64)


def _spread(ends: Ints, of: Runs) -> Ints:
    return np.asarray(np.maximum.reduceat(ends, of.first) - np.minimum.reduceat(ends, of.first), np.int64)
