"""How evenly a router spreads its tokens, and how many it drops: one row per step and layer, over all ranks.

Measures are of counts before any drop where they are known (`counted`); counts from after it look more even than the
router is. `imbalance_ratio` is the busiest expert over the mean, `ep_imbalance_ratio` the same for expert-parallel
ranks, whose experts work one after the other: that one costs time. `chance_imbalance_ratio` is what an even router
would show with so few tokens. `dropped_count` is null where nothing is dropped by design (dropless) and where it is
not known: never a zero that nobody saw.

Method: records are settled one by one (`_router_counts`), then summed over ranks; measures in `formulas.load`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, label
from diagnose.analyses._router_counts import COUNTED, KEPT, ROUTED, UNKNOWN, Calls, Counts, resolve
from diagnose.formulas import load
from diagnose.formulas.load import Floats
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "layer of one step, with its router's load over all ranks that recorded it",
    ("segment", INT32, "stretch between restarts, from 0"),
    ("step", INT64, "step number; null where records name none"),
    ("layer", INT32, "layer as recorded; null: the only one, or all together"),
    ("records_count", INT64, "router calls behind it"),
    ("ranks_count", INT64, "ranks that recorded it; 0: records name no rank"),
    ("experts_count", INT64, "experts"),
    ("topk", INT32, "experts per token; null where unknown"),
    ("assigned_count", INT64, "tokens times top-k; null where a record lacks one of them"),
    ("tokens_count", INT64, "assignments counted, before a drop where known"),
    ("counted", LABEL, "routed: before any drop | kept: after it | unknown"),
    ("dropless", BOOL, "true: nothing is dropped by design; false: there is a capacity; null: unknown"),
    ("capacity_count", INT64, "room per expert and call, the least of the calls; null: none, or unknown"),
    ("dropped_count", INT64, "assignments dropped; null: dropless, or unknown"),
    ("drop_ratio", FLOAT, "of all assignments; null as dropped_count"),
    ("busiest_expert", INT32, "expert with most assignments"),
    ("busiest_count", INT64, "its assignments"),
    ("imbalance_ratio", FLOAT, "busiest over mean"),
    ("chance_imbalance_ratio", FLOAT, "what an even router shows by chance"),
    ("variation_ratio", FLOAT, "coefficient of variation over experts"),
    ("entropy_ratio", FLOAT, "entropy of the shares over that of an even load"),
    ("gini_ratio", FLOAT, "Gini coefficient over experts"),
    ("unused_count", INT64, "experts without any assignment"),
    ("ep_size", INT32, "expert-parallel degree; null where unknown"),
    ("busiest_ep_rank", INT32, "place in the expert-parallel group with most assignments"),
    ("ep_imbalance_ratio", FLOAT, "its assignments over the mean of all places"),
    ("doubled_count", INT64, "records that counted every token twice, and were halved"),
    ("inconsistent_count", INT64, "records that contradict themselves"),
)
_MOST_CELLS = 1 << 22
"""Cells of a dense block of (rows, experts)."""


def router_load(moe_setup: pa.Table, router: pa.Table | None = None, router_calls: pa.Table | None = None) -> pa.Table:
    """One row per segment, step and layer, in that order; none without router records."""
    if router is None or router_calls is None:
        return SCHEMA.empty()
    calls, counts = resolve(router, router_calls, moe_setup)
    if not len(counts.call):
        return SCHEMA.empty()
    where = np.stack((calls.segment, calls.step, calls.layer))
    places, row = np.unique(where, axis=1, return_inverse=True)
    row = np.ravel(row)
    facts = _facts(calls, row, places.shape[1])
    measures = _measures(counts, row[counts.call], facts)
    columns: dict[str, Any] = {
        "segment": places[0].astype(np.int32), "step": _known(places[1]), "layer": _known(places[2].astype(np.int32)),
    }  # fmt: skip
    return SCHEMA.build(columns | {name: v for name, v in facts.items() if name in SCHEMA.arrow.names} | measures)


def _known(values: Ints) -> np.ma.MaskedArray[Any, Any]:
    return np.ma.array(values, mask=values < 0)


def _facts(calls: Calls, row: Ints, rows: int) -> dict[str, Any]:
    """What sums over the calls of each row tell; a sum is unknown where one call's value is."""
    records = np.bincount(row, minlength=rows)
    assigned, dropped = (_sums(values, row, rows) for values in (calls.assigned, calls.dropped))
    dropless = np.bincount(row, calls.dropless, rows) == records
    counted = np.full(rows, ROUTED, np.int64)
    np.maximum.at(counted, row, calls.counted)
    several = np.bincount(row, calls.counted == ROUTED, rows) % np.maximum(records, 1) > 0
    counted = np.where(several & (counted == KEPT), UNKNOWN, counted)
    least = np.full(rows, np.iinfo(np.int64).max)
    np.minimum.at(least, row, np.where(calls.capacity >= 0, calls.capacity, least[0]))
    pairs = np.unique(np.stack((row, calls.rank)), axis=1)
    ep = _shared(calls.ep_size, row, rows)
    experts = np.zeros(rows, np.int64)
    np.maximum.at(experts, row, calls.experts)
    return {
        "records_count": records, "ranks_count": np.bincount(pairs[0][pairs[1] >= 0], minlength=rows),
        "experts_count": experts, "topk": _known(_shared(calls.topk, row, rows).astype(np.int32)),
        "assigned_count": _known(assigned), "counted": label(list(COUNTED), counted),
        "dropless": np.ma.array(dropless, mask=~dropless & (least == np.iinfo(np.int64).max) & (dropped < 0)),
        "capacity_count": np.ma.array(least, mask=dropless | (least == np.iinfo(np.int64).max)),
        "dropped_count": np.ma.array(dropped, mask=(dropped < 0) | dropless),
        "ep_size": _known(ep.astype(np.int32)),
        "doubled_count": np.bincount(row, calls.doubled, rows).astype(np.int64),
        "inconsistent_count": np.bincount(row, calls.inconsistent, rows).astype(np.int64),
        "all_assigned": assigned, "all_dropped": np.where(dropless, -1, dropped), "ep": ep,
    }  # fmt: skip


def _sums(values: Ints, row: Ints, rows: int) -> Ints:
    total = np.bincount(row, np.maximum(values, 0), rows).astype(np.int64)
    return np.where(np.bincount(row, values < 0, rows) == 0, total, -1)


def _shared(values: Ints, row: Ints, rows: int) -> Ints:
    """The value that all calls of a row share; -1 where they differ or do not say."""
    low, high = np.full(rows, np.iinfo(np.int64).max), np.full(rows, -1, np.int64)
    np.minimum.at(low, row, values)
    np.maximum.at(high, row, values)
    return np.where(low == high, high, -1)


def _measures(counts: Counts, row: Ints, facts: dict[str, Any]) -> dict[str, Any]:
    """Measures of every row, block by block; a row's matrix is as wide as its number of experts."""
    experts = facts["experts_count"]
    rows = len(experts)
    floats = ("imbalance_ratio", "variation_ratio", "entropy_ratio", "gini_ratio", "chance_imbalance_ratio",
              "ep_imbalance_ratio")  # fmt: skip
    out = {name: np.full(rows, np.nan) for name in floats}
    whole = {name: np.full(rows, -1, np.int64) for name in ("tokens_count", "busiest_expert", "busiest_count",
                                                            "unused_count", "busiest_ep_rank")}  # fmt: skip
    order = np.argsort(row, kind="stable")
    ends = np.searchsorted(row[order], np.arange(rows + 1))
    for width in np.unique(experts).tolist():
        mine = np.flatnonzero(experts == width)
        for block in np.array_split(mine, max(1, -(-len(mine) * width // _MOST_CELLS))):
            cells = np.concatenate([order[ends[r] : ends[r + 1]] for r in block.tolist()])
            dense = np.zeros((len(block), width))
            np.add.at(dense, (np.searchsorted(block, row[cells]), counts.expert[cells]), counts.value[cells])
            _fill(out, whole, block, dense, facts["ep"][block])
    total = np.where(facts["all_assigned"] >= 0, facts["all_assigned"], whole["tokens_count"])
    known = (facts["all_dropped"] >= 0) & (total > 0)
    ratio = np.where(known, facts["all_dropped"] / np.maximum(total, 1), np.nan)
    found: dict[str, Any] = {
        name: pa.array(v, FLOAT, mask=np.isnan(v)) for name, v in (out | {"drop_ratio": ratio}).items()
    }
    narrow = {"busiest_expert", "busiest_ep_rank"}
    return found | {name: _known(v.astype(np.int32) if name in narrow else v) for name, v in whole.items()}


def _fill(out: dict[str, Floats], whole: dict[str, Ints], block: Ints, dense: Floats, ep: Ints) -> None:
    out["imbalance_ratio"][block] = load.imbalance(dense)
    out["variation_ratio"][block] = load.variation(dense)
    out["entropy_ratio"][block] = load.entropy(dense)
    out["gini_ratio"][block] = load.gini(dense)
    out["chance_imbalance_ratio"][block] = load.chance_imbalance(dense.mean(axis=1), dense.shape[1])
    whole["tokens_count"][block] = dense.sum(axis=1).astype(np.int64)
    whole["busiest_expert"][block] = dense.argmax(axis=1)
    whole["busiest_count"][block] = dense.max(axis=1).astype(np.int64)
    whole["unused_count"][block] = (dense == 0).sum(axis=1)
    for size in np.unique(ep[ep > 0]).tolist():
        mine = np.flatnonzero(ep == size)
        if dense.shape[1] % size == 0:
            on_ranks = dense[mine].reshape(len(mine), size, -1).sum(axis=2)
            out["ep_imbalance_ratio"][block[mine]] = load.imbalance(on_ranks)
            whole["busiest_ep_rank"][block[mine]] = on_ranks.argmax(axis=1)
