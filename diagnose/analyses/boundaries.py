"""Groups and pipeline boundaries beside their equals: whose transfers are slow, and what that costs the job.

From traces: the measured bandwidth of a group against the median of its equals (same dimension, operation, size, ranks
and nodes). From pipeline timelines: the median transfer between two stages against that of the others. Waiting is in
neither: a transfer counts from when the last one was ready. What the slow ones would win is the replay's gain;
`more_ns`, without it, is exposed transfer beyond the usual, an upper bound.

Method: joins of the tables named; the arithmetic is theirs.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import FLOAT, INT32, INT64, LABEL, RANKS, table

SCHEMA = table(
    "group, operation and size, or boundary of two pipeline stages, with measured transfers",
    ("evidence", LABEL, "calls: traces of several ranks | pipeline: a timeline of its stages"),
    ("group", LABEL, "process group; of a pipeline, its stages"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("op", LABEL, "normalised operation"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("busbw_bytes_per_s", FLOAT, "measured bus bandwidth; null for pipelines"),
    ("usual_busbw_bytes_per_s", FLOAT, "median of the equals; null where there are fewer than two"),
    ("own_ns", INT64, "pipeline: median transfer"),
    ("usual_ns", INT64, "pipeline: median transfer of the other boundaries"),
    ("slowdown_ratio", FLOAT, "usual bandwidth over own, or own transfer over the usual; null where not comparable"),
    ("equals_count", INT32, "groups or boundaries compared with"),
    ("stage", INT32, "pipeline stage before the boundary"),
    ("ranks", RANKS, "ranks of the group"),
    ("scope", LABEL, "how figures are to be read: per step | over the recording (no steps)"),
    ("step_ns", INT64, "mean step"),
    ("more_ns", INT64, "exposed transfer beyond the usual on the rank that has least of it, per step"),
    ("gain_ns", INT64, "what the job gains per step if it is like its equals; null where not replayed"),
)

_CALLS = """
WITH compared AS (
  SELECT a."group"::VARCHAR AS name, a.op::VARCHAR AS op, a.size_bytes, ANY_VALUE(a.dim)::VARCHAR AS dim,
    ANY_VALUE(a.busbw_bytes_per_s) AS own_per_s, COUNT(b."group") AS equals_count,
    CASE WHEN COUNT(b."group") >= 2 THEN MEDIAN(b.busbw_bytes_per_s) END AS usual_per_s
  FROM link_expectations AS a LEFT JOIN link_expectations AS b
    ON b.op = a.op AND b.size_bytes = a.size_bytes AND b.dim = a.dim AND b.ranks_count = a.ranks_count
    AND b."group" <> a."group" AND b.node_count IS NOT DISTINCT FROM a.node_count
    AND b.busbw_bytes_per_s IS NOT NULL
  WHERE a.busbw_bytes_per_s IS NOT NULL GROUP BY a."group", a.op, a.size_bytes
), traffic AS (
  SELECT c.rank, s.name, s.op, s.size_bytes,
    SUM(CAST((c.exposed_ns - c.exposed_wait_ns) * GREATEST(1 - s.own_per_s / s.usual_per_s, 0) AS BIGINT)) AS exposed_ns
  FROM collectives AS c
  SEMI JOIN spans AS a ON a.rank = c.rank AND a.step IS NOT DISTINCT FROM c.step
  JOIN compared AS s ON s.op = c.op AND s.size_bytes = c.size_bytes AND s.name = c."group"::VARCHAR
  WHERE c.transfer_ns IS NOT NULL GROUP BY ALL
), worst AS (
  SELECT name, op, size_bytes, LEAST(traffic.exposed_ns // job.spans_count, job.comm_ns)::BIGINT AS more_ns
  FROM traffic JOIN mean_steps AS job USING (rank)
  QUALIFY ROW_NUMBER() OVER (PARTITION BY name, op, size_bytes ORDER BY more_ns, rank) = 1
), gain AS (
  SELECT "group"::VARCHAR AS name, ANY_VALUE(gain_ns) AS gain_ns FROM rank_what_if WHERE fixed = 'group' GROUP BY ALL
)
SELECT 'calls' AS evidence, name AS "group", dim, op, size_bytes, own_per_s, usual_per_s, NULL AS own_ns,
  NULL AS usual_ns, usual_per_s / NULLIF(own_per_s, 0) AS slowdown_ratio, equals_count, NULL AS stage,
  (SELECT ANY_VALUE(g.ranks) FROM groups AS g WHERE g."group" = name) AS ranks,
  (SELECT ANY_VALUE(scope) FROM mean_steps) AS scope, (SELECT MAX(step_ns) FROM mean_steps) AS step_ns, more_ns,
  CASE WHEN gain_ns IS NOT NULL THEN GREATEST(LEAST(gain_ns, (SELECT MAX(step_ns) FROM mean_steps)), 0) END AS gain_ns
FROM compared LEFT JOIN worst USING (name, op, size_bytes) LEFT JOIN gain USING (name)
ORDER BY name, op, size_bytes
"""

_PIPELINE = """
SELECT 'pipeline' AS evidence, 'stages ' || w.stage || ' and ' || w.stage + 1 AS "group", 'pp' AS dim, 'p2p' AS op,
  NULL AS size_bytes, NULL AS own_per_s, NULL AS usual_per_s, w.own_ns, w.usual_ns,
  w.own_ns / GREATEST(w.usual_ns, 1000) AS slowdown_ratio,
  (SELECT COUNT(*) - 1 FROM what_if WHERE fixed = 'link') AS equals_count, w.stage, w.ranks, 'per step' AS scope,
  base.measured_ns AS step_ns, GREATEST(w.gain_ns, 0) AS more_ns, GREATEST(w.gain_ns, 0) AS gain_ns
FROM what_if AS w, (SELECT * FROM what_if WHERE fixed = 'nothing' AND reason IS NULL) AS base
WHERE w.fixed = 'link' ORDER BY w.stage, w.replica
"""

Tables = dict[str, pa.Table | None]


def boundaries(
    link_expectations: pa.Table | None = None, collectives: pa.Table | None = None, spans: pa.Table | None = None,
    mean_steps: pa.Table | None = None, groups: pa.Table | None = None, rank_what_if: pa.Table | None = None,
    what_if: pa.Table | None = None,
) -> pa.Table:  # fmt: skip
    """One row per group, operation and size, or per boundary of two stages and replica."""
    calls: Tables = {"link_expectations": link_expectations, "collectives": collectives, "spans": spans,
                     "mean_steps": mean_steps, "groups": groups, "rank_what_if": rank_what_if}  # fmt: skip
    found = [_of(_CALLS, calls), _of(_PIPELINE, {"what_if": what_if})]
    return pa.concat_tables([SCHEMA.empty(), *found]).unify_dictionaries().combine_chunks()


def _of(query: str, given: Tables) -> pa.Table:
    tables = {name: found for name, found in given.items() if found is not None}
    if len(tables) < len(given):
        return SCHEMA.empty()
    with sql.over(**tables) as connection:
        rows = connection.sql(query).fetchall()
    names = SCHEMA.arrow.names
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return SCHEMA.build({n: pa.array(v, SCHEMA.arrow.field(n).type) for n, v in zip(names, columns, strict=True)})
