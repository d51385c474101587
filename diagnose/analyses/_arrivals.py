"""When every rank arrived in the calls it shares with others, on clocks made comparable."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, place, take
from diagnose.analyses._instances import runs
from diagnose.analyses.matches import SYNCHRONISING


class Arrival(NamedTuple):
    """Per row of `calls_on_device`; all arrays of one length."""

    match: Ints  # -1: not matched
    start_ns: Ints  # on the reference's clock
    end_ns: Ints
    last_ns: Ints  # start of the rank that came last; own start where not matched
    error_ns: Ints  # of the clocks involved, the largest
    comparable: Flags  # every rank of the call is known, on one reference
    complete: Flags  # comparable, and no rank of the group is missing
    synchronising: Flags  # nobody leaves before the last came
    paired: Flags  # a send and a receive, both still there when the later one came


def arrivals_of(calls: pa.Table, matches: pa.Table, clocks: pa.Table) -> Arrival:
    """Arrivals of all rows, in their order."""
    match = integers(matches["match"], -1)
    at = place(integers(clocks["rank"]), calls["rank"])
    start = integers(calls["ts_ns"])
    shift, error, reference = _clock(clocks, at, start)
    start = start + shift
    end = start + integers(calls["dur_ns"])
    last, worst = start.copy(), error.copy()
    comparable, met = np.zeros(len(match), bool), np.zeros(len(match), bool)
    rows = np.flatnonzero(match >= 0)
    if len(rows):
        of = runs(match[rows])
        first, index, order = of.first, of.of_row, rows[of.order]
        last[rows] = np.maximum.reduceat(start[order], first)[index]
        worst[rows] = np.maximum.reduceat(error[order], first)[index]
        low, high = np.minimum.reduceat(reference[order], first), np.maximum.reduceat(reference[order], first)
        met[rows] = (np.minimum.reduceat(end[order], first) >= last[order[first]])[index]
        comparable[rows] = ((low == high) & (low >= 0))[index]
    whole = integers(matches["seen_count"], -1) == integers(matches["expected_count"], -2)
    synchronises = np.array([name in SYNCHRONISING for name in dictionary(calls["op"])], bool)[codes(calls["op"])]
    pair = np.array([name == "pair" for name in dictionary(matches["level"])], bool)[codes(matches["level"])]
    return Arrival(match, start, end, last, worst, comparable, comparable & whole, synchronises, pair & met)


def _clock(clocks: pa.Table, at: Ints, moment: Ints) -> tuple[Ints, Ints, Ints]:
    """(what to add, its error, reference or -1) per row."""
    known = flags(clocks["offset_ns"].is_valid())
    reference = take(np.where(known, integers(clocks["reference"], -1), -1), at, -1)
    shift = take(integers(clocks["offset_ns"]), at, 0)
    drift = np.nan_to_num(np.asarray(clocks["drift_ratio"].fill_null(0.0), float))
    if drift.any():
        rate = np.where(at >= 0, drift[at], 0.0)
        shift = shift + np.rint(rate * (moment - take(integers(clocks["at_ns"]), at, 0))).astype(np.int64)
    return shift, take(integers(clocks["error_ns"]), at, 0), reference
