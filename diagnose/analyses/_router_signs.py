"""Load of experts as metrics over steps, so that drift of a run can be laid beside the drift of its routers.

Mean over layers: `expert_imbalance_ratio` (of expert-parallel ranks where they are known, else of experts) and
`router_entropy` (of the shares, over that of an even load).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import integers
from diagnose.schema import INGESTED


def router_series(router_load: pa.Table) -> pa.Table:
    """Rows of the shape of `series`, rank unknown, one per step and metric."""
    named = router_load.filter(router_load["step"].is_valid())
    schema = INGESTED["series"]
    if not named.num_rows:
        return schema.empty()
    where = np.stack([integers(named[c], 0) for c in ("segment", "step")])
    places, row = np.unique(where, axis=1, return_inverse=True)
    by_rank = named["ep_imbalance_ratio"].null_count < named.num_rows
    columns = {
        "expert_imbalance_ratio": "ep_imbalance_ratio" if by_rank else "imbalance_ratio",
        "router_entropy": "entropy_ratio",
    }
    parts = []
    for metric, column in columns.items():
        value = np.asarray(named[column].fill_null(np.nan), np.float64)
        known = np.isfinite(value)
        count = np.bincount(np.ravel(row)[known], minlength=places.shape[1])
        total = np.bincount(np.ravel(row)[known], value[known], places.shape[1])
        kept = count > 0
        parts.append(
            schema.build(
                {
                    "segment": places[0][kept].astype(np.int32), "step": places[1][kept],
                    "metric": [metric] * int(kept.sum()), "value": total[kept] / count[kept],
                }
            )
        )  # fmt: skip
    return pa.concat_tables(parts).unify_dictionaries()
