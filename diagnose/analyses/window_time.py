"""The same partition over the whole recording: from the first to the last device event of each rank.

It includes what no step holds: work in flight from before the recording, and what ran after the last mark. On a job
without a device it spans the first to the last work of the host. Ranks whose device side is missing have no rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.analyses._columns import integers, label
from diagnose.analyses._partition import partition
from diagnose.schema import INT32, INT64, LABEL, PARTS, table

SCHEMA = table(
    "part of one rank's window",
    ("rank", INT32, "global rank"),
    ("part", LABEL, "one of PARTS"),
    ("dur_ns", INT64, "time in that part"),
)


def window_time(kernels: pa.Table, idle: pa.Table, collectives: pa.Table) -> pa.Table:
    """Parts of the window of every rank with work; parts of zero length are left out."""
    found = [SCHEMA.empty()]
    for rank in pc.unique(kernels["rank"]).to_pylist():
        mine = kernels.filter(pc.equal(kernels["rank"], rank))
        sets = partition(mine, *(t.filter(pc.equal(t["rank"], rank)) for t in (idle, collectives)))
        start = integers(mine["ts_ns"])
        first, last = int(start.min()), int((start + integers(mine["dur_ns"])).max())
        spent = np.array([iv.total(iv.clip(sets[part], first, last)) for part in PARTS], np.int64)
        assert spent.sum() == last - first, f"parts of rank {rank} do not sum to its window"
        part = np.flatnonzero(spent)
        found.append(
            SCHEMA.build(
                {
                    "rank": np.full(len(part), rank, np.int32),
                    "part": label(list(PARTS), part),
                    "dur_ns": spent[part],
                }
            )
        )
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()
