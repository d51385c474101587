"""What every rank sends and receives in each all-to-all, and how unequal that is over its group.

`received_ratio` is what the rank receives over the mean of the ranks in the same call: 1 on all ranks is even, 2 on
one means that it gets twice its share and, where experts work on what arrives, twice the work. It is null unless all
ranks of the call were recorded. Bytes are counted as sent, padding included: capacity-padded tokens look even.

Method: message sizes of both directions and own parts from split sizes (`_splits`), means over matched calls.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, integers, label
from diagnose.analyses._instances import runs
from diagnose.analyses._splits import SPLITS, Pieces, exchanges
from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "all-to-all call of one rank whose bytes per rank are told",
    ("event_id", INT64, "row of events, as in collectives"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("match", INT64, "call instance, as in collectives; null: not matched"),
    ("group", LABEL, "process group name; null where unknown"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("phase", LABEL, "forward | backward | optimizer"),
    ("sent_bytes", INT64, "in all, its own part included; null where unknown"),
    ("received_bytes", INT64, "in all, its own part included; null where unknown"),
    ("own_bytes", INT64, "of sent_bytes, what stays on this rank; null where unknown"),
    ("received_ratio", FLOAT, "received over the mean of all ranks in this call; null unless all are known"),
    ("splits", LABEL, "recorded | even: no list, and every rank sends what it receives"),
)


def all_to_all_loads(calls_on_device: pa.Table, matches: pa.Table, members: pa.Table, files: pa.Table) -> pa.Table:
    """One row per all-to-all in `calls_on_device` with split sizes (or even) and a group of known ranks."""
    told = exchanges(calls_on_device, matches, members, files)
    listed = np.zeros(len(told.row), bool)
    for parts in (told.sent, told.received):
        listed[parts.of] = True
    row = told.row[listed]
    mine = calls_on_device.take(pa.array(row))
    own = _own(told.sent, integers(calls_on_device["rank"])[told.row])[listed]
    received = integers(mine["received_bytes"], -1)
    ratio = _over_mean(received, matches.take(pa.array(row)))
    return SCHEMA.build(
        {
            **{name: mine[name] for name in ("event_id", "rank", "step", "group", "dim", "phase", "received_bytes")},
            "match": matches["match"].take(pa.array(row)),
            "sent_bytes": mine["size_bytes"],
            "own_bytes": np.ma.array(own, mask=own < 0),
            "received_ratio": pa.array(ratio, FLOAT, mask=np.isnan(ratio)),
            "splits": label(list(SPLITS), told.even[listed].astype(np.int64)),
        }
    )


def _own(sent: Pieces, rank: Ints) -> Ints:
    """Bytes of each call from the rank to itself; -1 where no list says."""
    found = np.full(len(rank), -1, np.int64)
    home = sent.peer == rank[sent.of]
    found[sent.of[home]] = sent.size_bytes[home]
    return found


def _over_mean(received: Ints, matches: pa.Table) -> np.ndarray:
    """Received over the mean of the call; NaN unless every rank of it is here and known."""
    match, expected = integers(matches["match"], -1), integers(matches["expected_count"], -1)
    result = np.full(len(match), np.nan)
    rows = np.flatnonzero((match >= 0) & (received >= 0))
    if not len(rows):
        return result
    of = runs(match[rows])
    total = np.add.reduceat(received[rows][of.order], of.first)[of.of_row]
    complete = (of.size_of[of.of_row] == expected[rows]) & (total > 0)
    result[rows[complete]] = (received[rows] * expected[rows] / np.maximum(total, 1))[complete]
    return result
