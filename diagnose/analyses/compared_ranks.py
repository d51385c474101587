"""Ranks measured against the others of their kind: who makes the job wait, what the job would gain, and why.

From traces: ranks that meet in collectives (`late_ranks`, what the others waited; `rank_what_if`, what the job would
gain if the rank were like the others). From pipeline timelines: workers slower than the other copies of their stage
(`what_if`); with one copy, a slow worker and a heavy stage look alike and nothing is said here.
`blamed_ratio` is the share of all lateness that is this rank's; of a pipeline, the share of an ideal job's gain that
fixing the slowest 3 % of workers (M_W), or all that are clearly slow, brings.
Cause: the part of its own time whose excess over the others costs the job most.

Method: joins of the tables named; the arithmetic is theirs.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import FLOAT, INT32, INT64, LABEL, RANKS, table

SCHEMA = table(
    "rank that can be compared with others",
    ("evidence", LABEL, "calls: traces of several ranks | pipeline: timelines of its workers"),
    ("rank", INT32, "global rank; of several, the slowest"),
    ("ranks", RANKS, "all ranks concerned"),
    ("scope", LABEL, "how figures are to be read: per step | over the recording (no steps)"),
    ("step_ns", INT64, "mean step of the longest rank; of a pipeline, as recorded"),
    ("waits_ns", INT64, "what the others wait for it alone, per step: an upper bound of the gain"),
    ("gain_ns", INT64, "what the job gains per step if it is like the others; null where not replayed"),
    ("blamed_ratio", FLOAT, "of all lateness, its share; pipeline: M_W; null where nobody is blamed"),
    ("last_count", INT64, "shared calls in which it came last"),
    ("judged_count", INT64, "shared calls in which the clocks can tell who came last; pipeline: steps"),
    ("caused_wait_ns", INT64, "waiting of all others for it together; null for pipelines"),
    ("incomplete_count", INT64, "shared calls with a rank of the group missing"),
    (
        "untold_ns",
        INT64,
        "exposed communication per step that nobody tells from waiting; null for pipelines",
    ),
    ("cause", LABEL, "compute | input | gc | copy | host | begin (late from before); null where none stands out"),
    ("cause_ns", INT64, "of the cause, what it takes more than the median of the others, per step"),
    ("stage", INT32, "pipeline stage; null for traces"),
    ("slowdown_ratio", FLOAT, "pipeline: S of the job"),
    ("m_w_ratio", FLOAT, "pipeline: M_W"),
    ("m_s_ratio", FLOAT, "pipeline: M_S"),
)

_CALLS = """
WITH job AS (
  SELECT rank, ANY_VALUE(scope) AS scope, ANY_VALUE(mean_ns) AS step_ns, COUNT(*) AS spans,
    SUM(compute_ns + unclassified_ns) // COUNT(*) AS compute_ns, SUM(input_ns) // COUNT(*) AS input_ns,
    SUM(gc_ns) // COUNT(*) AS gc_ns, SUM(copy_ns) // COUNT(*) AS copy_ns,
    SUM(alloc_ns + sync_ns + launch_ns + idle_ns) // COUNT(*) AS host_ns
  FROM spans GROUP BY rank
), parts AS (UNPIVOT job ON compute_ns, input_ns, gc_ns, copy_ns, host_ns INTO NAME part VALUE own_ns
), more AS (
  SELECT a.rank, replace(a.part, '_ns', '') AS cause, ANY_VALUE(a.own_ns) - MEDIAN(b.own_ns)::BIGINT AS more_ns
  FROM parts AS a JOIN parts AS b ON b.part = a.part AND b.rank <> a.rank GROUP BY a.rank, a.part
), replayed AS (
  SELECT rank, ARG_MAX(part, gain_ns) AS cause, MAX(gain_ns) AS part_ns FROM rank_what_if
  WHERE fixed = 'rank_part' GROUP BY rank
), untold AS (
  SELECT c.rank, SUM(c.exposed_ns)::BIGINT AS untold_ns
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.wait_ns IS NULL GROUP BY c.rank
), gain AS (SELECT rank, gain_ns FROM rank_what_if WHERE fixed = 'rank' AND gain_ns IS NOT NULL
), longest AS (SELECT rank, ARG_MAX(cause, more_ns) AS cause, MAX(more_ns) AS more_ns FROM more GROUP BY rank
), rows AS (
  SELECT l.*, job.scope, (SELECT MAX(step_ns) FROM job) AS step_ns, job.spans, gain.gain_ns,
    LEAST(l.lost_ns // job.spans, (SELECT MAX(step_ns) FROM job)) AS waits_ns,
    COALESCE(untold.untold_ns, 0) // job.spans AS untold_ns,
    CASE WHEN r.part_ns > 0 AND 2 * r.part_ns >= gain.gain_ns THEN r.cause
         WHEN gain.gain_ns IS NULL AND 2 * longest.more_ns >= l.lost_ns // job.spans AND longest.more_ns > 0
         THEN longest.cause END AS cause
  FROM late_ranks AS l JOIN job USING (rank) LEFT JOIN gain USING (rank) LEFT JOIN replayed AS r USING (rank)
  LEFT JOIN longest USING (rank) LEFT JOIN untold USING (rank)
)
SELECT 'calls' AS evidence, r.rank, [r.rank] AS ranks, scope, step_ns, waits_ns,
  CASE WHEN gain_ns IS NOT NULL THEN GREATEST(LEAST(gain_ns, step_ns), 0) END AS gain_ns,
  blamed_ratio, last_count, judged_count, caused_wait_ns,
  incomplete_count, untold_ns, r.cause, m.more_ns AS cause_ns, NULL AS stage, NULL AS slowdown_ratio, NULL AS m_w_ratio,
  NULL AS m_s_ratio
FROM rows AS r LEFT JOIN more AS m ON m.rank = r.rank AND m.cause = r.cause ORDER BY r.rank
"""

_PIPELINE = """
WITH base AS (SELECT * FROM what_if WHERE fixed = 'nothing' AND reason IS NULL),
slowest AS (SELECT * FROM what_if WHERE fixed = 'slowest_workers'),
slow AS (SELECT * FROM what_if WHERE fixed = 'slow_workers'),
copied AS (  -- workers whose stage has other copies
  SELECT w.* FROM what_if AS w
  WHERE w.fixed = 'worker' AND (SELECT COUNT(*) FROM what_if AS o WHERE o.fixed = 'worker' AND o.stage = w.stage) > 1
), worst AS (
  SELECT ARG_MAX(rank, (gain_ns, slowdown_ratio)) AS rank, ARG_MAX(stage, (gain_ns, slowdown_ratio)) AS stage
  FROM copied
  WHERE LIST_CONTAINS((SELECT ranks FROM slow), rank)
    OR ((SELECT COUNT(*) FROM slow) = 0 AND LIST_CONTAINS((SELECT ranks FROM slowest), rank))
)
SELECT 'pipeline' AS evidence, worst.rank, COALESCE((SELECT ranks FROM slow), [worst.rank]) AS ranks,
  'per step' AS scope, base.measured_ns AS step_ns,
  GREATEST(slowest.gain_ns, (SELECT gain_ns FROM slow), 0) AS waits_ns,
  GREATEST((SELECT gain_ns FROM slow), 0) AS gain_ns,
  GREATEST(slowest.explained_ratio, (SELECT explained_ratio FROM slow)) AS blamed_ratio, NULL AS last_count,
  base.steps_count::BIGINT AS judged_count, NULL AS caused_wait_ns, 0 AS incomplete_count,
  NULL AS untold_ns, CASE WHEN (SELECT COUNT(*) FROM slow) > 0 THEN 'compute' END AS cause, NULL AS cause_ns,
  worst.stage,
  (SELECT slowdown_ratio FROM what_if WHERE fixed = 'everything') AS slowdown_ratio,
  slowest.explained_ratio AS m_w_ratio,
  (SELECT ARG_MAX(explained_ratio, stage) FROM what_if WHERE fixed = 'stage') AS m_s_ratio
FROM base, slowest, worst WHERE worst.rank IS NOT NULL
"""


def compared_ranks(
    late_ranks: pa.Table | None = None, spans: pa.Table | None = None, rank_what_if: pa.Table | None = None,
    collectives: pa.Table | None = None, what_if: pa.Table | None = None,
) -> pa.Table:  # fmt: skip
    """One row per rank that shares calls with others, or one for the slowest workers of a pipeline."""
    found = [SCHEMA.empty()]
    given = {"late_ranks": late_ranks, "spans": spans, "rank_what_if": rank_what_if, "collectives": collectives}
    known = {name: table for name, table in given.items() if table is not None}
    if len(known) == len(given) and known["late_ranks"].num_rows:
        found.append(_of(_CALLS, **known))
    if what_if is not None and what_if.num_rows:
        found.append(_of(_PIPELINE, what_if=what_if))
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def _of(query: str, **tables: pa.Table) -> pa.Table:
    with sql.over(**tables) as connection:
        rows = connection.sql(query).fetchall()
    names = SCHEMA.arrow.names
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return SCHEMA.build({n: pa.array(v, SCHEMA.arrow.field(n).type) for n, v in zip(names, columns, strict=True)})
