"""Process groups that span nodes beyond any fast domain, with the exposed transfer that goes over them.

The traffic is that of the rank which waits least: waiting for a late peer is not the link's fault. Ranks that compute
nothing (a communication benchmark) have nothing to hide it under and are left out.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import BOOL, INGESTED, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "process group of one dimension that spans several nodes and carries exposed traffic",
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("group", TEXT, "process group name"),
    ("group_size", INT32, "ranks in it"),
    ("node_count", INT32, "nodes it spans"),
    ("per_node_count", INT32, "as in groups"),
    ("fewest_node_count", INT32, "as in groups"),
    ("rank", INT32, "the rank whose traffic this is"),
    ("matched", BOOL, "calls were matched across ranks: waiting is not in it"),
    ("scope", LABEL, "as in spans"),
    ("exposed_ns", INT64, "exposed transfer of the dimension in this group, mean per step of the rank"),
    ("step_ns", INT64, "longest mean step of the ranks"),
    ("ranks_count", INT32, "ranks compared"),
)

_SQL = """
WITH job AS (
  SELECT * FROM mean_steps WHERE compute_ns > 0
),
domain AS (
  SELECT MAX(TRY_CAST(value AS INTEGER)) AS ranks FROM settings WHERE key = 'cluster.fast_domain'
),
crossing AS (
  SELECT
    g.dim::VARCHAR AS dim, g."group"::VARCHAR AS "group", g.size, g.node_count, g.per_node_count, g.fewest_node_count
  FROM groups AS g, domain
  WHERE g.dim IS NOT NULL AND g.node_count > 1 AND (domain.ranks IS NULL OR g.size IS NULL OR g.size > domain.ranks)
),
traffic AS (
  SELECT
    c.rank, c.dim::VARCHAR AS dim, c."group"::VARCHAR AS "group",
    SUM(c.exposed_ns - COALESCE(c.exposed_wait_ns, 0)) AS exposed_ns, COUNT(c.wait_ns) > 0 AS matched
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  GROUP BY ALL
)
SELECT
  dim, "group", crossing.size AS group_size, node_count, per_node_count, fewest_node_count, rank, matched, job.scope,
  LEAST(traffic.exposed_ns // job.spans_count, job.comm_ns)::BIGINT AS exposed_ns,
  (SELECT MAX(step_ns) FROM job) AS step_ns, (SELECT COUNT(*) FROM job) AS ranks_count
FROM crossing JOIN traffic USING (dim, "group") JOIN job USING (rank)
WHERE traffic.exposed_ns IS NOT NULL
QUALIFY ROW_NUMBER() OVER (PARTITION BY dim ORDER BY exposed_ns, rank) = 1
ORDER BY dim
"""


def crossings(
    groups: pa.Table, collectives: pa.Table, spans: pa.Table, mean_steps: pa.Table, settings: pa.Table | None = None
) -> pa.Table:
    """One row per dimension with such a group."""
    given = {"groups": groups, "collectives": collectives, "spans": spans, "mean_steps": mean_steps}
    given["settings"] = INGESTED["settings"].empty() if settings is None else settings
    with sql.over(**given) as connection:
        found: pa.Table = connection.sql(_SQL).to_arrow_table()
    return SCHEMA.build({name: found[name] for name in SCHEMA.arrow.names})
