"""Calls of many simulated ranks as the tables that matching reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses.calls_on_device import SCHEMA
from diagnose.schema import INGESTED
from fixtures.simulate.many_ranks import DIMS, Shape


def calls(columns: dict[str, Any], *, named: bool = True, comm_id: bool = False) -> pa.Table:
    """`calls_on_device` of simulated columns."""
    count = len(columns["rank"])
    text = {c: pa.array(columns[c].tolist(), pa.string()) for c in ("op", "direction")}
    return SCHEMA.build(
        {
            **text,
            "event_id": np.arange(count),
            "rank": columns["rank"],
            "group": pa.array(columns["group"].tolist() if named else [None] * count, pa.string()),
            "dim": pa.array(columns["dim"].tolist(), pa.string()),
            "seq": np.ma.array(columns["seq"], mask=columns["seq"] < 0),
            "comm_id": pa.array(columns["comm_id"] if comm_id else [None] * count, pa.uint64()),
            "size_bytes": columns["size_bytes"],
            "peer": np.ma.array(columns["peer"], mask=columns["peer"] < 0),
            "stream": np.full(count, 7),
            "ts_ns": columns["ts_ns"],
            "dur_ns": columns["dur_ns"],
        }
    )


def members(shape: Shape) -> pa.Table:
    """Every rank's list of its groups."""
    rows = [
        {"rank": rank, "group": f"{dim}{i}", "size": len(ranks), "ranks": list(ranks)}
        for dim in DIMS
        if getattr(shape, dim) > 1
        for i, ranks in enumerate(shape.groups(dim))
        for rank in ranks
    ]
    return INGESTED["members"].build(
        {
            "rank": [r["rank"] for r in rows],
            "group": pa.array([r["group"] for r in rows], pa.string()),
            "size": [r["size"] for r in rows],
            "ranks": pa.array([r["ranks"] for r in rows], pa.list_(pa.int32())),
        }
    )


def files(shape: Shape) -> pa.Table:
    """One document per rank."""
    ranks = np.arange(shape.world_size)
    return INGESTED["files"].build({"file": ranks, "rank": ranks, "world_size": np.full(len(ranks), len(ranks))})


def right_and_wrong(match: pa.ChunkedArray, truth: np.ndarray) -> tuple[float, int]:
    """(share of rows of several ranks put together rightly, instances that mix true ones)."""
    found = np.asarray(match.fill_null(-1))
    good = found >= 0
    pairs = np.unique(np.stack((found[good], truth[good])), axis=1)
    mixed = int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())
    seen = np.bincount(truth)[truth] > 1
    return float(good[seen].mean()), mixed
