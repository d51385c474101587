"""The exact partition of every step: parts are disjoint and sum to the step, to the nanosecond.

A part is where the step's time went on the device, not what it would gain: hidden communication takes no part, and
waiting for other ranks is inside communication until calls are matched. Parts of zero length are left out.
Steps whose device side was not recorded have no rows.

Method: `_partition` of the rank, cut by the device interval of each step.
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
    "part of one step of one rank (parts of zero length are left out)",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step"),
    ("part", LABEL, "one of PARTS"),
    ("dur_ns", INT64, "time in that part"),
)


def step_time(steps: pa.Table, kernels: pa.Table, idle: pa.Table, collectives: pa.Table) -> pa.Table:
    """Parts of every (rank, step) with work on the device."""
    found = [SCHEMA.empty()]
    for rank in pc.unique(kernels["rank"]).to_pylist():
        mine = steps.filter(pc.and_(pc.equal(steps["rank"], rank), pc.is_valid(steps["ts_ns"])))
        sets = partition(*(t.filter(pc.equal(t["rank"], rank)) for t in (kernels, idle, collectives)))
        start = integers(mine["ts_ns"])
        end = start + integers(mine["dur_ns"])
        spent = np.stack([iv.overlap_with(start, end, sets[part]) for part in PARTS], axis=1)
        assert np.array_equal(spent.sum(axis=1), end - start), f"parts of rank {rank} do not sum to its steps"
        step, part = np.nonzero(spent)
        found.append(
            SCHEMA.build(
                {
                    "rank": np.full(len(step), rank, np.int32),
                    "step": mine["step"].take(pa.array(step)),
                    "part": label(list(PARTS), part),
                    "dur_ns": spent[step, part],
                }
            )
        )
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()
