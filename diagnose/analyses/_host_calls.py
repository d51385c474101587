"""Who called each piece of host communication (gloo): the `c10d::*` operator behind a range on a worker thread.

Workers take calls in the order in which they were called, so the n-th range of a kind is the n-th operator of that
kind, where a rank has equally many of both; else nothing is told. Gloo reduces and scatters by an all-reduce.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers
from diagnose.analyses._operations import code, operation
from diagnose.analyses._work import of_kind


def callers(events: pa.Table, ranges: Ints) -> Ints:
    """Row in `events` (of one rank) of the operator that called each row of `ranges`; -1: not told."""
    found = np.full(len(ranges), -1, np.int64)
    names, name = dictionary(events["name"]), codes(events["name"])
    start = integers(events["ts_ns"])
    kind = np.array([code(operation(n)) if n.startswith("gloo:") else 0 for n in names], np.int64)
    called = np.array([_as_gloo(n) if n.startswith("c10d::") else 0 for n in names], np.int64)
    operators = of_kind(events, "op")
    for one in np.unique(kind[name[ranges]]).tolist():
        mine = np.flatnonzero(kind[name[ranges]] == one)
        theirs = operators[called[name[operators]] == one]
        if one and len(mine) == len(theirs):
            found[mine[np.argsort(start[ranges[mine]], kind="stable")]] = theirs[
                np.argsort(start[theirs], kind="stable")
            ]
    return found


def _as_gloo(name: str) -> int:
    """Operation under which gloo runs an operator."""
    op = operation(name)
    return code("all_reduce" if op == "reduce_scatter" else op)
