/*
title = "A group that would fit on fewer nodes is spread over more"
severity = "warning"
needs = ["groups", "collectives", "mean_steps", "spans"]
needs_values = ["groups.node_count", "groups.fewest_node_count"]
summary = "{groups_count} {dim} groups of {group_size} ranks span {node_count} nodes where {fewest_node_count} would do; exposed communication there takes {lost_ns} {scope} ({share_ratio})"
why = """
Rank order decides which ranks are neighbours. A group whose ranks are strided over nodes talks over the network although
the fast links of one node could carry it."""
fix = """
Make the chattiest dimension the fastest in the rank order: tensor, then context, then expert parallelism (Megatron-LM
--use-tp-pp-dp-mapping changes the order; DeviceMesh: the last mesh dimension varies fastest). Check that the launcher
gives consecutive ranks to one node (srun --distribution=block, mpirun --map-by ppr:N:node, torchrun does)."""
quiet_when = "the group needs that many nodes, its traffic is hidden or small, or it is data- or pipeline-parallel (meant to cross)"
collect = "a job.toml with [cluster] gpus_per_node, or host names in the inputs"
sources = [
  "rank order of the dimensions: https://github.com/NVIDIA/Megatron-LM (parallel_state.py, RankGenerator)",
]
[params]
min_share_ratio = { default = 0.02, doc = "of the step; where the traffic is hidden or small, the order costs nothing; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
),
spread AS (
  SELECT
    dim,
    COUNT(*) AS groups_count,
    MAX(size) AS group_size,
    MAX(node_count) AS node_count,
    MAX(fewest_node_count) AS fewest_node_count
  FROM groups
  WHERE dim IN ('tp', 'cp', 'ep') AND node_count > fewest_node_count
  GROUP BY dim
),
traffic AS (
  SELECT c.rank, c.dim, SUM(c.exposed_ns - COALESCE(c.exposed_wait_ns, 0)) AS exposed_ns, COUNT(c.wait_ns) > 0 AS matched
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE EXISTS (
    FROM groups AS g
    WHERE g."group" = c."group" AND g.node_count > g.fewest_node_count AND (g.ranks IS NULL OR LIST_CONTAINS(g.ranks, c.rank))
  )
  GROUP BY ALL
),
least AS (
  SELECT
    spread.*,
    traffic.rank,
    traffic.matched,
    job.scope,
    LEAST(traffic.exposed_ns // job.spans_count, job.comm_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM spread JOIN traffic USING (dim) JOIN job USING (rank)
  QUALIFY ROW_NUMBER() OVER (PARTITION BY dim ORDER BY lost_ns, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  lost_ns / step_ns AS share_ratio,
  scope,
  dim,
  groups_count,
  group_size,
  node_count,
  fewest_node_count,
  CASE WHEN matched THEN 1.0 ELSE 0.5 END AS confidence_ratio,
  [rank] AS ranks
FROM least
WHERE lost_ns > $min_share_ratio * step_ns
