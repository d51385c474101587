"""Where a replay gives no answer, and why: findings then carry what was waited, an upper bound, not what is won."""

from __future__ import annotations

import pyarrow as pa

from diagnose.schema import INGESTED

SCHEMA = INGESTED["quality"]


def replay_doubts(what_if: pa.Table | None = None, rank_what_if: pa.Table | None = None) -> pa.Table:
    """One row per replay that was withheld."""
    tables = [("the pipeline", what_if), ("ranks that meet in collectives", rank_what_if)]
    rows = [
        {"problem": "no_replay", "count": 1, "detail": f"replay of {name}: {row['reason']}"}
        for name, found in tables
        for row in ([] if found is None else found.slice(0, 1).to_pylist())
        if row["reason"]
    ]
    return SCHEMA.of_rows(rows)
