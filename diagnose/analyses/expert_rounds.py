"""Rounds through the experts on every rank: tokens in, compute, tokens back; and what a balanced load would win.

A round is an exchange to the experts and the next one back. `expert_ns` is the compute of the rank between them; with
expert tensor parallelism or a shared expert in between, theirs is in it. A round ends for all when the busiest rank's
experts are done: the others wait in the exchange back. `balanced_gain_ns` is what the round would be shorter if all
ranks of the call took the mean, no more than what anybody waited there: time that imbalance costs. It is null unless
every rank of the call was recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import Ints, codes, dictionary, integers
from diagnose.analyses._instances import runs
from diagnose.analyses._partition import busy_set, of_class
from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "round of one rank through the experts: an exchange to them and the next one back",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("round", INT32, "n-th of the rank and step, from 0"),
    ("phase", LABEL, "forward | backward; null where nothing says"),
    ("match", INT64, "call instance of the exchange back; null: not matched"),
    ("ts_ns", INT64, "start of the exchange to the experts"),
    ("dispatch_ns", INT64, "exchange to the experts, waiting included"),
    ("expert_ns", INT64, "compute between the two exchanges"),
    ("combine_ns", INT64, "exchange back, waiting included"),
    ("dispatch_wait_ns", INT64, "of dispatch_ns, waiting for the last rank; null until matched"),
    ("combine_wait_ns", INT64, "of combine_ns, waiting for the last rank; null until matched"),
    ("exposed_transfer_ns", INT64, "of both, neither waiting nor hidden; null until matched"),
    ("ranks_count", INT32, "ranks of the call seen"),
    ("busiest_rank", INT32, "rank whose experts took longest; null unless all ranks were seen"),
    ("mean_expert_ns", INT64, "mean over the ranks of the call; null unless all were seen"),
    (
        "received_imbalance_ratio",
        FLOAT,
        "what the rank whose experts took longest receives, over the mean; null unless known of all",
    ),
    ("balanced_gain_ns", INT64, "what an even load would win in this round; null unless all ranks were seen"),
)


def expert_rounds(exchanges: pa.Table, kernels: pa.Table | None = None, matches: pa.Table | None = None) -> pa.Table:
    """One row per rank, step and round, in that order; none without traces."""
    if kernels is None or matches is None:
        return SCHEMA.empty()
    ways = np.array(dictionary(exchanges["way"]))[codes(exchanges["way"])]
    tokens = exchanges.filter(pa.array(ways != "extra"))
    if tokens.num_rows < 2:
        return SCHEMA.empty()
    rank, step, place = (integers(tokens[c], -1) for c in ("rank", "step", "place"))
    order = np.lexsort((place, step, rank))
    first, second = order[:-1], order[1:]
    same = (rank[first] == rank[second]) & (step[first] == step[second]) & (place[second] == place[first] + 1)
    way = np.array(dictionary(tokens["way"]))[codes(tokens["way"])]
    pair = same & (way[first] == "to") & (way[second] == "back")
    to, back = tokens.take(pa.array(first[pair])), tokens.take(pa.array(second[pair]))
    if not to.num_rows:
        return SCHEMA.empty()
    work = _between(to, back, kernels)
    found = _balance(to, back, work, matches)
    return SCHEMA.build(
        {
            **{name: to[name] for name in ("rank", "step", "phase", "ts_ns")},
            "round": (integers(to["place"]) // 2).astype(np.int32), "match": back["match"],
            "dispatch_ns": to["dur_ns"], "combine_ns": back["dur_ns"], "expert_ns": work,
            "dispatch_wait_ns": to["wait_ns"], "combine_wait_ns": back["wait_ns"],
            "exposed_transfer_ns": pc.add(_moved(to), _moved(back)),
            **found,
        }
    )  # fmt: skip


def _moved(exchanges: pa.Table) -> pa.ChunkedArray:
    return pc.subtract(exchanges["exposed_ns"], exchanges["exposed_wait_ns"])


def _between(to: pa.Table, back: pa.Table, kernels: pa.Table) -> Ints:
    """Compute of each rank from the end of one exchange to the start of the other."""
    rank = integers(to["rank"])
    begin = integers(to["ts_ns"]) + integers(to["dur_ns"])
    end = np.maximum(integers(back["ts_ns"]), begin)
    result = np.zeros(len(rank), np.int64)
    for one in np.unique(rank).tolist():
        mine = kernels.filter(pc.equal(kernels["rank"], one))
        rows = np.flatnonzero(rank == one)
        result[rows] = iv.overlap_with(begin[rows], end[rows], busy_set(mine, of_class(mine, "compute")))
    return result


def _balance(to: pa.Table, back: pa.Table, work: Ints, matches: pa.Table) -> dict[str, Any]:
    """Who took longest in each call, the mean, and the gain; masked unless all ranks of the call are here."""
    match, rank = integers(back["match"], -1), integers(back["rank"])
    size = len(match)
    seen, busiest = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    mean, gain = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    received, uneven = integers(to["received_bytes"], -1), np.full(size, np.nan)
    rows = np.flatnonzero(match >= 0)
    if len(rows):
        of = runs(match[rows])
        ordered = rows[of.order]
        longest = np.maximum.reduceat(work[ordered], of.first)[of.of_row]
        total = np.add.reduceat(work[ordered], of.first)[of.of_row]
        waited = np.maximum.reduceat(integers(back["wait_ns"], 0)[ordered], of.first)[of.of_row]
        last = np.maximum.reduceat(np.where(work[rows] == longest, rank[rows], -1)[of.order], of.first)[of.of_row]
        seen[rows] = of.size_of[of.of_row]
        complete = rows[seen[rows] == _expected(back, matches)[rows]]
        keep = np.isin(rows, complete)
        told = np.minimum.reduceat(received[ordered], of.first)[of.of_row] >= 0
        tokens = np.add.reduceat(received[ordered], of.first)[of.of_row]
        mine = np.where(work[rows] == longest, received[rows], -1)[of.order]
        most = np.maximum.reduceat(mine, of.first)[of.of_row] * seen[rows]
        ratio = np.where(told & (tokens > 0), most / np.maximum(tokens, 1), np.nan)
        uneven[complete] = ratio[keep]
        busiest[complete], mean[complete] = last[keep], total[keep] // seen[complete]
        gain[complete] = np.minimum(longest[keep] - mean[complete], waited[keep])
    return {
        "ranks_count": np.maximum(seen, 1).astype(np.int32),
        "received_imbalance_ratio": pa.array(uneven, FLOAT, mask=np.isnan(uneven)),
        "busiest_rank": np.ma.array(busiest.astype(np.int32), mask=busiest < 0),
        "mean_expert_ns": np.ma.array(mean, mask=mean < 0),
        "balanced_gain_ns": np.ma.array(gain, mask=gain < 0),
    }


def _expected(back: pa.Table, matches: pa.Table) -> Ints:
    """Ranks of each row's call."""
    number, count = integers(matches["match"], -1), integers(matches["expected_count"], -1)
    highest = int(max(number.max(initial=-1), integers(back["match"], -1).max(initial=-1)))
    of = np.full(highest + 2, -1, np.int64)
    of[number] = count
    return of[integers(back["match"], -1)]
