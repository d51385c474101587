"""Communication that is far slower right after a pause: the first call of every burst against the rest.

Calls alike (operation, group, size) follow each other in bursts; a pause is ten typical calls long and a millisecond at
least. Where the first call of most bursts takes three times the median of the others, it is warm-up (clocks and network
cards wake up), not the cost of the operation: `median_ns` of the others is what to judge by. Seen with expert-parallel
dispatch after idle time: https://github.com/deepseek-ai/DeepEP/issues/138 (the cause was not settled there).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, integers
from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "kind of call of one rank that is slow after pauses",
    ("rank", INT32, "global rank"),
    ("op", LABEL, "normalised operation"),
    ("group", LABEL, "process group name; null where unknown"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("calls_count", INT64, "calls of this kind"),
    ("bursts_count", INT64, "bursts they come in"),
    ("cold_count", INT64, "first calls of bursts that are slow"),
    ("median_ns", INT64, "median of all calls that are not"),
    ("cold_ns", INT64, "median of the slow ones"),
    ("pause_ns", INT64, "shortest pause before a slow one; the first call of the recording aside"),
    ("extra_ns", INT64, "what slow ones took beyond the median, in all"),
)
LEAST_CALLS = 8
PAUSE_CALLS = 10
PAUSE_NS = 1_000_000
SLOW_RATIO = 3.0


def cold_calls(collectives: pa.Table) -> pa.Table:
    """One row per kind of call whose bursts begin slowly."""
    keys = ("rank", "op", "group", "size_bytes")
    if collectives.num_rows < LEAST_CALLS:
        return SCHEMA.empty()
    coded = [integers(collectives["rank"]), codes(collectives["op"]), codes(collectives["group"]),
             integers(collectives["size_bytes"], -1)]  # fmt: skip
    kind = np.ravel(np.unique(np.stack(coded), axis=1, return_inverse=True)[1])
    start, length = integers(collectives["ts_ns"]), integers(collectives["dur_ns"])
    order = np.lexsort((start, kind))
    heads = np.flatnonzero(np.r_[True, np.diff(kind[order]) != 0])
    rows: list[dict[str, Any]] = []
    for mine in np.split(order, heads[1:]):
        found = _cold(start[mine], length[mine]) if len(mine) >= LEAST_CALLS else None
        if found is not None:
            rows.append({key: collectives[key][int(mine[0])].as_py() for key in keys} | found)
    return SCHEMA.of_rows(rows)


def _cold(start: Ints, length: Ints) -> dict[str, int | None] | None:
    """Figures of one kind of call, in order of start; None where bursts do not begin slowly."""
    pause = np.r_[0, start[1:] - (start + length)[:-1]]
    first: Flags = np.r_[True, pause[1:] > max(PAUSE_NS, PAUSE_CALLS * float(np.median(length)))]
    bursts = int(first.sum())
    if bursts < 2 or bursts * 2 > len(start):
        return None
    usual = float(np.median(length[~first]))
    cold = first & (length >= SLOW_RATIO * usual)
    if usual <= 0 or int(cold.sum()) * 2 <= bursts:
        return None
    pauses = pause[cold & (np.arange(len(start)) > 0)]
    return {
        "calls_count": len(start), "bursts_count": bursts, "cold_count": int(cold.sum()),
        "median_ns": round(float(np.median(length[~cold]))), "cold_ns": round(float(np.median(length[cold]))),
        "pause_ns": int(pauses.min()) if len(pauses) else None,
        "extra_ns": round(float((length[cold] - usual).sum())),
    }  # fmt: skip
