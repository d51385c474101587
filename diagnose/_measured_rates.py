"""Measured against modelled time of the same work: products at their recorded shapes, collectives on their links.

Only what was measured on its own counts: products with known shapes and number format whose rate does not pass the
peak, and calls matched across ranks, without waiting. Small samples are left out. A ratio above 1 is slower than the
model says.
"""

from __future__ import annotations

from diagnose import sql
from diagnose.planner.layers import product_s
from diagnose.schema import Tables

BITS = {"bfloat16": 16, "float16": 16, "float8": 8}
LEAST_CALLS = 8
"""Products or calls behind a ratio; a guess: enough that one odd kernel does not decide."""


def of_kinds(tables: Tables, gpu: str) -> dict[str, float]:
    """`matmul` and dimensions -> measured / modelled time; absent where nothing was measured."""
    found = _dimensions(tables)
    if (products := _products(tables, gpu)) is not None:
        found["matmul"] = products
    return found


def _products(tables: Tables, gpu: str) -> float | None:
    gemms = tables.get("gemms")
    if gemms is None or not gemms.num_rows:
        return None
    with sql.over(gemms=gemms) as connection:
        rows = connection.sql(
            """SELECT m, n, k, batch, dtype::VARCHAR, count(*), sum(dur_ns)::BIGINT FROM gemms
               WHERE efficiency_ratio IS NOT NULL AND dur_ns > 0 AND m > 0 AND n > 0 AND k > 0 GROUP BY ALL"""
        ).fetchall()
    measured = modelled = 0.0
    count = 0
    for m, n, k, batch, dtype, calls, dur_ns in rows:
        seconds = product_s((m, n, k), gpu, BITS[dtype], max(1, batch or 1)) if dtype in BITS else None
        if seconds:
            measured, modelled, count = measured + dur_ns * 1e-9, modelled + calls * seconds, count + calls
    return measured / modelled if count >= LEAST_CALLS else None


def _dimensions(tables: Tables) -> dict[str, float]:
    links = tables.get("link_expectations")
    if links is None or not links.num_rows:
        return {}
    with sql.over(links=links) as connection:
        rows = connection.sql(
            """SELECT dim::VARCHAR, sum(calls_count * transfer_ns) / sum(calls_count * expected_ns) FROM links
               WHERE expected_ns > 0 AND dim IN ('tp', 'cp', 'ep', 'pp', 'dp')
               GROUP BY dim HAVING sum(calls_count) >= ?""",
            params=[LEAST_CALLS],
        ).fetchall()
    return {str(dim): float(ratio) for dim, ratio in rows}
