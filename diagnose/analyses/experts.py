"""Every expert over the run: its share of its layer's tokens, early and late, and what it dropped.

`load_ratio` is the expert's assignments over those of an even share, all steps together; early and late are the first
and the last third of the steps. 1 is even, 0 an expert that is never chosen. `late_expected_count` is the even share
of the last third: few expected tokens tell nothing about a missing expert.

Method: records are settled one by one (`_router_counts`), then summed over ranks and steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._router_counts import Calls, Counts, resolve
from diagnose.formulas.load import Floats
from diagnose.schema import FLOAT, INT32, INT64, table

SCHEMA = table(
    "expert of a layer, over all steps and ranks recorded",
    ("layer", INT32, "layer as recorded; null: the only one, or all together"),
    ("expert", INT32, "expert number over all ranks"),
    ("ep_rank", INT32, "its place in the expert-parallel group; null where the degree is unknown"),
    ("steps_count", INT64, "steps recorded for the layer"),
    ("tokens_count", INT64, "assignments, before a drop where known"),
    ("kept_count", INT64, "assignments it worked on; null where unknown"),
    ("dropped_count", INT64, "assignments it dropped; null: dropless, or unknown"),
    ("load_ratio", FLOAT, "assignments over an even share"),
    ("early_load_ratio", FLOAT, "the same over the first third of the steps"),
    ("late_load_ratio", FLOAT, "the same over the last third of the steps"),
    ("late_expected_count", INT64, "assignments of an even share in the last third"),
)


def experts(moe_setup: pa.Table, router: pa.Table | None = None, router_calls: pa.Table | None = None) -> pa.Table:
    """One row per layer and expert, experts that were never chosen included; none without router records."""
    if router is None or router_calls is None:
        return SCHEMA.empty()
    calls, counts = resolve(router, router_calls, moe_setup)
    parts = [SCHEMA.build(_of_layer(layer, calls, counts)) for layer in np.unique(calls.layer).tolist()]
    return pa.concat_tables([SCHEMA.empty(), *parts]).combine_chunks()


def _of_layer(layer: int, calls: Calls, counts: Counts) -> dict[str, Any]:
    width = int(calls.experts[calls.layer == layer].max())
    mine = calls.layer[counts.call] == layer
    of, expert = counts.call[mine], counts.expert[mine]
    value, kept = counts.value[mine], counts.kept[mine]
    time = calls.segment * (1 << 40) + calls.step
    moments = np.unique(time[calls.layer == layer])
    third = max(1, len(moments) // 3)
    early, late = time[of] < moments[min(third, len(moments) - 1)], time[of] > moments[max(-third - 1, -len(moments))]
    if len(moments) == 1:
        early = late = np.ones(len(of), bool)
    total = np.bincount(expert, value, width)
    unknown = np.bincount(expert, kept < 0, width) > 0
    worked = np.bincount(expert, np.maximum(kept, 0), width)
    size = _ep(calls, layer, width)
    dropless = calls.dropless[calls.layer == layer].all()
    before = (calls.counted[of] == 0).all()
    number = np.arange(width)
    return {
        "layer": np.ma.array(np.full(width, layer, np.int32), mask=np.full(width, layer < 0)),
        "expert": number.astype(np.int32),
        "ep_rank": np.ma.array(
            (number // max(width // max(size, 1), 1)).astype(np.int32), mask=np.full(width, size < 1)
        ),
        "steps_count": np.full(width, len(moments), np.int64),
        "tokens_count": total.astype(np.int64),
        "kept_count": np.ma.array(worked.astype(np.int64), mask=unknown),
        "dropped_count": np.ma.array((total - worked).astype(np.int64), mask=unknown | dropless | (not before)),
        "load_ratio": _ratio(total.astype(np.float64)),
        "early_load_ratio": _ratio(_sum(expert, value, early, width)),
        "late_load_ratio": _ratio(_sum(expert, value, late, width)),
        "late_expected_count": np.full(width, round(float(_sum(expert, value, late, width).mean())), np.int64),
    }


def _sum(expert: Ints, value: Ints, chosen: Flags, width: int) -> Floats:
    found: Floats = np.bincount(expert[chosen], value[chosen], width).astype(np.float64)
    return found


def _ratio(total: Floats) -> np.ma.MaskedArray[Any, Any]:
    mean = total.mean()
    return np.ma.array(total / mean if mean else np.zeros(len(total)), mask=np.full(len(total), mean == 0))


def _ep(calls: Calls, layer: int, width: int) -> int:
    sizes = set(calls.ep_size[calls.layer == layer].tolist())
    size = sizes.pop() if len(sizes) == 1 else -1
    return size if size > 0 and width % size == 0 else -1
