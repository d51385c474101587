"""Clock of each rank against the clock of the lowest rank that shares a collective with it, and how sure that is.

`offset_ns` is what to add to a rank's time, at the moment `at_ns` of its own clock, to get the reference's; a drift
adds `drift_ratio` ns per ns from there. Only calls that nobody leaves before the last one came count: their ends are
nearly one moment. Sends and receives count with an error of their whole transfer (a small send may end early). What
the ends do not agree on is the error, so it also holds the true spread of ends: the bar is honest, not small. It says
nothing about who was late. Ranks that share no collective, directly or through others, have different references:
their times must not be compared. An offset within its error is taken as 0, and its size added to the error: the
clocks agree as far as can be told.

Method: per group and rank, the median (with enough calls: a robust line) of its ends minus the group's; these
differences are reconciled over the graph of ranks and groups by least squares; errors add up along the best path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnose.analyses._clock_lines import Lines, fit
from diagnose.analyses._columns import Flags, Ints, dictionary, encode, flags, integers
from diagnose.analyses._columns import codes as codes_of
from diagnose.analyses.matches import SYNCHRONISING
from diagnose.schema import FLOAT, INT32, INT64, TEXT, table

SCHEMA = table(
    "rank with communication",
    ("rank", INT32, "global rank"),
    ("reference", INT32, "rank whose clock counts; only ranks of one reference are comparable"),
    ("offset_ns", INT64, "add to this rank's time to get the reference's; null where it shares no collective"),
    ("error_ns", INT64, "the offset is known to this; null with it"),
    ("drift_ratio", FLOAT, "how much faster the reference's clock runs; null where none can be told"),
    ("at_ns", INT64, "moment of this rank's clock at which the offset holds"),
    ("shared_count", INT64, "calls behind it"),
    ("reason", TEXT, "why there is no offset"),
)

RESOLUTION_NS = 1_000
"""Traces of many versions round to whole us."""
ALONE = "shares no synchronising call with another rank in these inputs"


class _Graph(NamedTuple):
    """Which ranks meet in which groups."""

    ranks: int
    lines: Lines
    component: Ints  # per rank
    reference: Ints  # per rank, the lowest rank of its component


def clocks(calls_on_device: pa.Table, matches: pa.Table) -> pa.Table:
    """One row per rank of `calls_on_device`."""
    ranks, rank = encode(calls_on_device["rank"])
    if not len(ranks):
        return SCHEMA.empty()
    if len(ranks) == 1:  # also spares the most common input scipy's import
        return SCHEMA.build({"rank": ranks, "shared_count": [0], "reason": [ALONE]})
    ends = integers(calls_on_device["ts_ns"]) + integers(calls_on_device["dur_ns"])
    synchronises, paired = _usable(calls_on_device, matches)
    chosen = np.flatnonzero(synchronises | paired)
    length = integers(calls_on_device["dur_ns"])
    calls = (integers(matches["match"])[chosen], length[chosen], paired[chosen])
    # Twice: a drift acts from one moment on, and what is one moment is only known once offsets are.
    rough = fit(rank[chosen], ends[chosen], *calls)
    coarse = np.rint(_reconciled(_graph(len(ranks), rough), rough.offset)).astype(np.int64)
    lines = fit(rank[chosen], ends[chosen] + coarse[rank[chosen]], *calls)
    graph = _graph(len(ranks), lines)
    offset = coarse + np.rint(_reconciled(graph, lines.offset)).astype(np.int64)
    drift = _reconciled(graph, lines.slope)
    error = _errors(graph)
    known = np.bincount(lines.rank, minlength=len(ranks)) > 0
    drift, with_drift = _with_drift(graph, drift)
    within = known & (np.abs(offset) <= error) & ~with_drift
    error, offset = np.where(within, error + np.abs(offset), error), np.where(within, 0, offset)
    shared = np.bincount(lines.rank, weights=lines.calls, minlength=len(ranks)).astype(np.int64)
    return SCHEMA.build(
        {
            "rank": ranks,
            "reference": np.ma.array(ranks[graph.reference], mask=~known),
            "offset_ns": np.ma.array(offset, mask=~known),
            "error_ns": np.ma.array(np.where(graph.reference == np.arange(len(ranks)), 0, error), mask=~known),
            "drift_ratio": np.ma.array(drift, mask=~(known & with_drift)),
            "at_ns": np.ma.array(lines.at_ns - coarse, mask=~known),
            "shared_count": shared,
            "reason": pa.array([None if k else ALONE for k in known.tolist()], pa.string()),
        }
    )


def _usable(calls: pa.Table, matches: pa.Table) -> tuple[Flags, Flags]:
    """Matched rows of synchronising collectives, and of sends and receives."""
    synchronises = np.array([name in SYNCHRONISING for name in dictionary(calls["op"])], bool)[codes_of(calls["op"])]
    matched = flags(matches["match"].is_valid())
    paired = np.array([name == "pair" for name in dictionary(matches["level"])], bool)[codes_of(matches["level"])]
    return synchronises & matched, paired


def _graph(count: int, lines: Lines) -> _Graph:
    groups = int(lines.group.max(initial=-1)) + 1
    shape = (count + groups, count + groups)
    from scipy import sparse
    from scipy.sparse import csgraph

    links = sparse.coo_matrix((np.ones(len(lines.rank)), (lines.rank, count + lines.group)), shape)
    component = csgraph.connected_components(links, directed=False)[1][:count].astype(np.int64)
    first = np.full(int(component.max()) + 1, count, np.int64)
    np.minimum.at(first, component, np.arange(count))
    return _Graph(count, lines, component, first[component])


def _reconciled(graph: _Graph, measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per rank, the value that fits `measured` (group minus rank, per line) best; 0 for references."""
    lines, count = graph.lines, graph.ranks
    if not len(lines.rank):
        return np.zeros(count)
    groups = int(lines.group.max()) + 1
    rows = np.arange(len(lines.rank))
    weight = np.sqrt(lines.calls / np.maximum(lines.spread_ns, RESOLUTION_NS))
    free = np.flatnonzero(graph.reference != np.arange(count))
    column = np.full(count, -1, np.int64)
    column[free] = np.arange(len(free))
    known = column[lines.rank] >= 0
    data = np.concatenate((weight[known], -weight))
    at = (np.concatenate((rows[known], rows)), np.concatenate((column[lines.rank[known]], len(free) + lines.group)))
    from scipy import sparse
    from scipy.sparse.linalg import spsolve

    equations = sparse.coo_matrix((data, at), (len(rows), len(free) + groups)).tocsr()
    solved = spsolve((equations.T @ equations).tocsc(), equations.T @ (weight * measured))
    result = np.zeros(count)
    result[free] = np.atleast_1d(solved)[: len(free)]
    return result


def _errors(graph: _Graph) -> Ints:
    """Per rank, the smallest sum of spreads on a path to its reference."""
    lines, count = graph.lines, graph.ranks
    groups = int(lines.group.max(initial=-1)) + 1
    shape = (count + groups, count + groups)
    width = np.maximum(lines.spread_ns, RESOLUTION_NS).astype(float)
    from scipy import sparse
    from scipy.sparse import csgraph

    links = sparse.coo_matrix((width, (lines.rank, count + lines.group)), shape).tocsr()
    roots = np.unique(graph.reference)
    far = csgraph.dijkstra(links, directed=False, indices=roots, min_only=True)[:count]
    return np.where(np.isfinite(far), np.minimum(far, 1e17), 0).astype(np.int64)


def _with_drift(graph: _Graph, drift: NDArray[np.float64]) -> tuple[NDArray[np.float64], Flags]:
    """Drift is only stated where its effect over the recording exceeds the resolution of the times."""
    lines = graph.lines
    drifting = np.zeros(graph.ranks, bool)
    drifting[graph.component[lines.rank[lines.drifting]]] = True
    stated = drifting[graph.component] & (np.abs(drift) * lines.span_ns > RESOLUTION_NS)
    stated &= np.bincount(lines.rank, minlength=graph.ranks) > 0
    return np.where(stated, drift, 0.0), stated
