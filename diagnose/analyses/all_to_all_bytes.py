"""Bytes that all-to-alls moved between every two ranks: the matrix, rank by rank.

Each row is told by the sender's split sizes; where the sender's recording is missing, by what the receiver got from
it. Calls that exchange tokens for experts come in pairs (to the experts and back), and the sum over both is nearly
symmetric: how unequal single calls are is in `all_to_all_loads`. A pair without a row is unknown, not zero: no list
was recorded, the writer cut it, or the group's ranks are unknown. Bytes of a rank to itself are rows, too; they cross
no link.

Method: split sizes times bytes per row (`_splits`), summed over the calls of a step and group.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import integers
from diagnose.analyses._splits import Exchanges, Pieces, exchanges
from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "step, group and ordered pair of ranks with an all-to-all between them",
    ("step", INT64, "step of the teller; null outside"),
    ("group", LABEL, "process group name; null where unknown"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("rank", INT32, "who sends"),
    ("peer", INT32, "who receives; may be the same"),
    ("size_bytes", INT64, "over all calls"),
    ("calls_count", INT64, "calls behind it, empty parts included"),
    ("told_by", LABEL, "sender | receiver"),
)
_KEYS = ["step", "group", "dim", "rank", "peer", "told_by"]


def all_to_all_bytes(calls_on_device: pa.Table, matches: pa.Table, members: pa.Table, files: pa.Table) -> pa.Table:
    """One row per step, group, sender and receiver; in that order."""
    told = exchanges(calls_on_device, matches, members, files)
    ranks = integers(calls_on_device["rank"])[told.row]
    there = np.unique(integers(calls_on_device["rank"]))
    unseen = ~np.isin(told.received.peer, there)
    received = Pieces(*(values[unseen] for values in told.received))
    sides = [
        _rows(calls_on_device, told, told.sent, ranks[told.sent.of], told.sent.peer, "sender"),
        _rows(calls_on_device, told, received, received.peer, ranks[received.of], "receiver"),
    ]
    both = pa.concat_tables(sides)
    if not both.num_rows:
        return SCHEMA.empty()
    summed = both.group_by(_KEYS).aggregate([("size_bytes", "sum"), ("size_bytes", "count")])
    summed = summed.sort_by([(name, "ascending") for name in ("step", "group", "rank", "peer")])
    columns = {name: summed[name] for name in _KEYS}
    return SCHEMA.build(
        columns | {"size_bytes": summed["size_bytes_sum"], "calls_count": summed["size_bytes_count"]}
    ).combine_chunks()


def _rows(
    calls: pa.Table, told: Exchanges, parts: Pieces, sender: np.ndarray, receiver: np.ndarray, teller: str
) -> pa.Table:
    at = pa.array(told.row[parts.of])
    said = {name: calls[name].take(at) for name in ("step", "group", "dim")}
    text = {name: pc.cast(said[name], pa.string()) for name in ("group", "dim")}
    numbers = {"rank": sender.astype(np.int32), "peer": receiver.astype(np.int32), "size_bytes": parts.size_bytes}
    return pa.table({"step": said["step"], **text, **numbers, "told_by": np.full(len(sender), teller)})
