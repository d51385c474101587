"""Ranks by how often they come last and what the others wait for them: one rank every time, or another each time.

`blamed_ns` adds the lateness of calls in which the rank was last by more than the clock error, and was not itself held
up by another rank before (`inherited`); lateness on ranks that
hide it under compute costs nothing, so `lost_ns` adds only what was exposed. `waited_ns` is the rank's own waiting for
others: much waiting and little blame is a victim. Per rank, over the analysed steps (else the whole recording), so
figures of one step are these over `steps_count`.

Method: sums over `arrivals` and `collectives`.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import FLOAT, INT32, INT64, table

SCHEMA = table(
    "rank that shares calls with others",
    ("rank", INT32, "global rank"),
    ("calls_count", INT64, "shared calls of the rank"),
    ("last_count", INT64, "of them, in which it came last by more than the clock error"),
    ("judged_count", INT64, "of them, in which the clocks can tell who came last"),
    ("blamed_ns", INT64, "lateness of the calls in which it came last"),
    ("lost_ns", INT64, "of it, exposed on the rank that waited longest"),
    ("caused_wait_ns", INT64, "waiting of all others in these calls together"),
    ("waited_ns", INT64, "its own waiting for others; null where not known"),
    (
        "blamed_ratio",
        FLOAT,
        "its blame over the job's: of groups side by side, that of the worst; null where nobody is blamed",
    ),
    ("last_steps_count", INT32, "steps in which it has most of the blame"),
    ("steps_count", INT32, "steps with blame, over all ranks; calls outside steps count as one"),
    ("incomplete_count", INT64, "of calls_count, with a rank of the group missing"),
)

_SQL = """
WITH judged AS (
  SELECT a.* FROM arrivals AS a SEMI JOIN spans AS s ON s.step IS NOT DISTINCT FROM a.step
), own AS (
  SELECT *, last_rank AS rank FROM judged WHERE last_rank IS NOT NULL AND NOT inherited
), shared AS (
  SELECT c.rank, count(*) AS calls_count, count(*) FILTER (j.last_rank IS NOT NULL) AS judged_count,
         sum(c.wait_ns)::BIGINT AS waited_ns, count(*) FILTER (NOT j.complete) AS incomplete_count
  FROM collectives AS c JOIN judged AS j USING (match) GROUP BY c.rank
), last AS (
  SELECT last_rank AS rank, count(*) AS last_count FROM judged WHERE last_rank IS NOT NULL GROUP BY ALL
), blame AS (
  SELECT rank, sum(late_ns)::BIGINT AS blamed_ns, sum(exposed_late_ns)::BIGINT AS lost_ns,
         sum(waited_ns)::BIGINT AS caused_wait_ns
  FROM own GROUP BY rank
), job AS (  -- groups of one dimension wait side by side: the worst of them is what the job waits
  SELECT sum(blamed_ns) AS blamed_ns FROM (
    SELECT max(blamed_ns) AS blamed_ns FROM (
      SELECT step, dim, "group", sum(late_ns) AS blamed_ns FROM own GROUP BY ALL
    ) GROUP BY step, dim
  )
), by_step AS (
  SELECT step, rank, sum(late_ns) AS blamed_ns FROM own GROUP BY ALL
), top AS (
  SELECT rank, count(*) AS last_steps_count FROM (
    SELECT rank FROM by_step QUALIFY row_number() OVER (PARTITION BY step ORDER BY blamed_ns DESC, rank) = 1
  ) GROUP BY rank
)
SELECT
  rank, calls_count, coalesce(last_count, 0) AS last_count, judged_count, coalesce(blame.blamed_ns, 0) AS blamed_ns,
  coalesce(lost_ns, 0) AS lost_ns, coalesce(caused_wait_ns, 0) AS caused_wait_ns, waited_ns,
  CASE WHEN (SELECT blamed_ns FROM job) > 0  -- LEAST leaves nulls out
    THEN least(coalesce(blame.blamed_ns, 0) / (SELECT blamed_ns FROM job), 1.0) END AS blamed_ratio,
  coalesce(last_steps_count, 0) AS last_steps_count,
  (SELECT count(*) FROM (SELECT DISTINCT step FROM by_step)) AS steps_count,
  incomplete_count
FROM shared LEFT JOIN last USING (rank) LEFT JOIN blame USING (rank) LEFT JOIN top USING (rank)
ORDER BY rank
"""


def late_ranks(arrivals: pa.Table, collectives: pa.Table, spans: pa.Table) -> pa.Table:
    """One row per rank that shares a call with another."""
    with sql.over(arrivals=arrivals, collectives=collectives, spans=spans) as connection:
        rows = connection.sql(_SQL).fetchall()
    names = SCHEMA.arrow.names
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return SCHEMA.build({c.name: pa.array(v, c.type) for c, v in zip(SCHEMA.columns, columns, strict=True)})
