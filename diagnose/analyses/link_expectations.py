"""Measured transfer of matched collectives against what their links should give, per group, operation and size.

Only transfer counts, never waiting: rows exist for calls whose whole group was seen. The expectation is that of an
otherwise idle fabric (`formulas.links`: NCCL's latencies, usable link rates, cost of chunks), from the GPU's measured
ring bandwidth inside a node, and across nodes from `cluster.inter_bytes_per_s` of the job's file; where a link or the
group's place on it is unknown, it is null. Calls that run under compute share memory and multiprocessors with it: the
median of the calls, not the best, is compared, so a finding needs a wide margin.

Method: median over calls of the bus bandwidth of the rank that arrived last, whose kernel is all transfer.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose import sql
from diagnose.formulas.bandwidth import busbw_factor
from diagnose.formulas.gpus import FastDomain, fast_domain
from diagnose.formulas.links import Fabric, Placement, collective_s
from diagnose.schema import FLOAT, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "operation of one size in one group, with measured transfer",
    ("group", LABEL, "process group name; null where unnamed"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("op", LABEL, "normalised operation"),
    ("size_bytes", INT64, "message size"),
    ("ranks_count", INT32, "ranks in the group"),
    ("node_count", INT32, "nodes it spans; null where unknown"),
    ("link", LABEL, "inside a node | across nodes; null where unknown"),
    ("calls_count", INT64, "calls measured"),
    ("transfer_ns", INT64, "median transfer"),
    ("busbw_bytes_per_s", FLOAT, "median bus bandwidth"),
    ("low_busbw_bytes_per_s", FLOAT, "5th percentile of it"),
    ("expected_ns", INT64, "transfer on an idle fabric; null where unknown"),
    ("expected_busbw_bytes_per_s", FLOAT, "bus bandwidth then"),
    ("of_expected_ratio", FLOAT, "measured over expected bus bandwidth"),
    ("source", TEXT, "where the expectation comes from"),
)

_SQL = """
WITH calls AS (  -- the last arrival of each call: its kernel holds no waiting
  SELECT c.match, any_value(c."group")::VARCHAR AS "group", any_value(c.dim)::VARCHAR AS dim,
         any_value(c.op)::VARCHAR AS op, any_value(c.size_bytes) AS size_bytes, count(*) AS ranks_count,
         list(c.rank ORDER BY c.rank) AS ranks, min(c.transfer_ns) AS transfer_ns,
         arg_min(c.busbw_bytes_per_s, c.transfer_ns) AS busbw_bytes_per_s
  FROM collectives AS c
  WHERE c.bandwidth_bound = 'measured' AND c.busbw_bytes_per_s IS NOT NULL AND c.transfer_ns > 0
  GROUP BY c.match
), placed AS (
  SELECT calls.*, g.node_count, g.per_node_count
  FROM calls LEFT JOIN (SELECT DISTINCT "group", ranks, node_count, per_node_count FROM groups) AS g
    ON g."group" = calls."group" AND list_sort(g.ranks) = calls.ranks
)
SELECT "group", dim, op, size_bytes, ranks_count, node_count, any_value(per_node_count) AS per_node_count,
       count(*) AS calls_count, median(transfer_ns)::BIGINT AS transfer_ns, median(busbw_bytes_per_s) AS busbw,
       quantile_cont(busbw_bytes_per_s, 0.05) AS low_busbw
FROM placed GROUP BY "group", dim, op, size_bytes, ranks_count, node_count, ranks
ORDER BY ALL
"""


def link_expectations(
    collectives: pa.Table, groups: pa.Table, files: pa.Table, settings: pa.Table | None = None
) -> pa.Table:
    """One row per group, operation and size with measured bandwidth."""
    with sql.over(collectives=collectives, groups=groups) as connection:
        found = connection.sql(_SQL)
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    gpus = {g for g in files["gpu"].to_pylist() if g}
    domain = fast_domain(gpus.pop()) if len(gpus) == 1 else None
    network = _network(settings)
    made = [_row(row, domain, network) for row in rows]
    return SCHEMA.build({c.name: pa.array([r[c.name] for r in made], c.type if c.type != LABEL else pa.string())
                         for c in SCHEMA.columns})  # fmt: skip


def _network(settings: pa.Table | None) -> float | None:
    """Bytes per second of one GPU to the network, as the job's file gives it."""
    if settings is not None:
        for key, value in zip(settings["key"].to_pylist(), settings["value"].to_pylist(), strict=True):
            if key == "cluster.inter_bytes_per_s" and value:
                try:
                    rate = float(value)
                except ValueError:
                    return None
                return rate if rate > 0 else None
    return None


def _row(row: dict[str, Any], domain: FastDomain | None, network: float | None) -> dict[str, Any]:
    nodes, n = row["node_count"], row["ranks_count"]
    link = None if nodes is None else ("inside a node" if nodes == 1 else "across nodes")
    expected, source = _expected_s(row, domain, network)
    bus = row["size_bytes"] * (busbw_factor(row["op"], n) or 0.0) / expected if expected else 0.0
    return {
        **{c: row[c] for c in ("group", "dim", "op", "size_bytes", "node_count", "calls_count", "transfer_ns")},
        "ranks_count": n,
        "link": link,
        "busbw_bytes_per_s": row["busbw"],
        "low_busbw_bytes_per_s": row["low_busbw"],
        "expected_ns": round(expected * 1e9) if expected and bus else None,
        "expected_busbw_bytes_per_s": bus or None,
        "of_expected_ratio": row["busbw"] / bus if bus else None,
        "source": source if bus else None,
    }


def _expected_s(
    row: dict[str, Any], domain: FastDomain | None, network: float | None
) -> tuple[float | None, str | None]:
    nodes, per_node = row["node_count"], row["per_node_count"]
    if domain is None or nodes is None or not per_node or row["size_bytes"] <= 0:
        return None, None
    if nodes > 1 and network is None:
        return None, None
    if nodes == 1 and row["ranks_count"] > domain.ranks:
        return None, None
    fabric = Fabric(domain.ring_bytes_per_s, network or 0.0, domain.ranks, domain.generation)
    place = Placement(row["ranks_count"], per_node)
    seconds = collective_s(row["op"], row["size_bytes"], place, fabric)
    where = domain.source if nodes == 1 else f"{domain.source}; across nodes cluster.inter_bytes_per_s"
    return (seconds, f"formulas.links with {where}") if seconds > 0 else (None, None)
