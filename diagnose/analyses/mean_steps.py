"""The mean analysed step of every rank: what a cost per step is held against, and the most that a cure of a part wins.

Means over the rank's rows of `spans`, rounded down; where no step is known it is the rank's recording, and `scope` says
so. Parts sum to the step but for the rounding.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import spans as of_spans
from diagnose.schema import INT32, INT64, LABEL, table

_PARTS = [c.name for c in of_spans.SCHEMA.columns if c.name.endswith("_ns") and c.name not in ("dur_ns", "mean_ns")]

SCHEMA = table(
    "mean analysed step of one rank, or its recording where no step is known",
    ("rank", INT32, "global rank"),
    ("scope", LABEL, "as in spans"),
    ("step_ns", INT64, "mean duration"),
    ("spans_count", INT32, "steps it is the mean of"),
    *((name, INT64, "as in spans, mean") for name in _PARTS),
)


def mean_steps(spans: pa.Table) -> pa.Table:
    """One row per rank, sorted."""
    texts = spans.set_column(spans.schema.get_field_index("scope"), "scope", spans["scope"].cast(pa.string()))
    sums = texts.group_by("rank", use_threads=False).aggregate(
        [("scope", "first"), ("mean_ns", "first"), ("rank", "count"), *((name, "sum") for name in _PARTS)]
    )
    count = sums["rank_count"]
    return SCHEMA.build(
        {
            "rank": sums["rank"],
            "scope": sums["scope_first"],
            "step_ns": sums["mean_ns_first"],
            "spans_count": count.cast(pa.int32()),
            **{name: pc.divide(sums[f"{name}_sum"], count) for name in _PARTS},
        }
    ).sort_by("rank")
