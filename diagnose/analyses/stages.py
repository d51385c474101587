"""How evenly a pipeline's stages are loaded: compute of one micro-batch per stage and step.

A stage's time is that of its own work, not of waiting or transfer. Over replicas the lower median counts, so that one
slow worker does not make its stage look heavy; `worker_ratio` tells how far the slowest copy is from that. With one
replica an uneven split and a slow GPU look alike: `replicas_count` is 1 and nothing here decides between them.
`ratio` is the stage's time over the mean of the others.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import BOOL, FLOAT, INT32, INT64, table

SCHEMA = table(
    "pipeline stage in one step",
    ("step", INT64, "step"),
    ("stage", INT32, "pipeline stage, from 0"),
    ("analysed", BOOL, "false for a first step that is warm-up"),
    ("replicas_count", INT32, "copies of the stage"),
    ("compute_ns", INT64, "work of one micro-batch: lower median over the copies of their mean"),
    ("forward_ns", INT64, "of it, forward"),
    ("backward_ns", INT64, "of it, backward (both gradients)"),
    ("others_ns", INT64, "mean over the other stages"),
    ("ratio", FLOAT, "compute / that of the others"),
    ("share_ratio", FLOAT, "of the work of all stages"),
    ("heavy", BOOL, "the step's heaviest stage"),
    ("worker_ratio", FLOAT, "slowest copy / the lower median; null with one"),
    ("slow_replica", INT32, "that copy"),
    ("slow_rank", INT32, "its rank"),
)

_SQL = """
WITH worker AS (
  SELECT step, stage, replica, rank, analysed, forward_ns / microbatches_count AS forward_ns,
         (backward_ns + weight_ns) / microbatches_count AS backward_ns, busy_ns / microbatches_count AS compute_ns
  FROM pipeline WHERE microbatches_count > 0
), stage AS (
  SELECT step, stage, bool_and(analysed) AS analysed, count(*) AS replicas_count,
         quantile_disc(compute_ns, 0.5 - 1e-9) AS compute_ns, quantile_disc(forward_ns, 0.5 - 1e-9) AS forward_ns,
         quantile_disc(backward_ns, 0.5 - 1e-9) AS backward_ns, max(compute_ns) AS slowest_ns,
         arg_max(replica, compute_ns) AS slow_replica, arg_max(rank, compute_ns) AS slow_rank
  FROM worker GROUP BY step, stage
), compared AS (
  SELECT *, sum(compute_ns) OVER w AS all_ns, count(*) OVER w AS stages_count,
         row_number() OVER (PARTITION BY step ORDER BY compute_ns DESC, stage) = 1 AS heavy
  FROM stage WINDOW w AS (PARTITION BY step)
)
SELECT step, stage, analysed, replicas_count, round(compute_ns)::BIGINT AS compute_ns,
       round(forward_ns)::BIGINT AS forward_ns, round(backward_ns)::BIGINT AS backward_ns,
       round((all_ns - compute_ns) / (stages_count - 1))::BIGINT AS others_ns,
       compute_ns * (stages_count - 1) / nullif(all_ns - compute_ns, 0) AS ratio, compute_ns / all_ns AS share_ratio,
       heavy, CASE WHEN replicas_count > 1 THEN slowest_ns / compute_ns END AS worker_ratio,
       CASE WHEN replicas_count > 1 THEN slow_replica END AS slow_replica,
       CASE WHEN replicas_count > 1 THEN slow_rank END AS slow_rank
FROM compared WHERE stages_count > 1 ORDER BY step, stage
"""


def stages(pipeline: pa.Table) -> pa.Table:
    """One row per step and stage of a pipeline of at least two."""
    with sql.over(pipeline=pipeline) as connection:
        found = connection.sql(_SQL).to_arrow_table()
    return SCHEMA.build({name: found[name] for name in SCHEMA.arrow.names})
