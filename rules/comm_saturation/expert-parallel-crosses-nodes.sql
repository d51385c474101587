/*
title = "Expert-parallel all-to-all crosses nodes"
severity = "warning"
needs = ["groups", "collectives", "spans", "settings"]
needs_values = ["groups.node_count"]
summary = "the expert-parallel group {group} of {group_size} ranks spans {node_count} nodes; its exposed communication takes {lost_ns} {scope} ({share_ratio})"
why = """
Dispatch and combine send every token to its experts, twice per layer and again backwards. Across nodes each GPU has one
network link for it instead of the fast links of its node."""
fix = """
Expert parallelism inside a node where the experts fit (Megatron-LM --expert-model-parallel-size at most the GPUs of a
node, with --expert-tensor-parallel-size 1). Where they do not: routing limited to few nodes (--moe-router-num-groups,
--moe-router-group-topk), a dispatcher that sends a token once per node (DeepEP: --moe-token-dispatcher-type flex
--moe-enable-deepep), 8-bit dispatch, and overlap with compute (--overlap-moe-expert-parallel-comm)."""
quiet_when = "the group stays on one node or in one fast domain (an NVL72 rack), or its traffic is hidden; nodes are unknown"
collect = "a job.toml with [cluster] gpus_per_node, or host names in the inputs"
sources = [
  "node-limited routing, and dispatch that crosses nodes once: https://arxiv.org/abs/2412.19437 (sections 2.1.2 and 3.2.2)",
]
[params]
min_share_ratio = { default = 0.02, doc = "of the step; where the traffic is hidden or small, crossing costs nothing; a guess, to be fitted" }
critical_share_ratio = { default = 0.20, doc = "of the step, from which it is critical; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, ANY_VALUE(scope) AS scope, ANY_VALUE(mean_ns) AS step_ns, COUNT(*) AS spans, SUM(comm_ns) // COUNT(*) AS comm_ns
  FROM spans
  GROUP BY rank
  HAVING SUM(compute_ns) > 0  -- a communication benchmark has nothing to hide under
),
domain AS (
  SELECT MAX(TRY_CAST(value AS INTEGER)) AS ranks FROM settings WHERE key = 'cluster.fast_domain'
),
crossing AS (
  SELECT g."group", g.size AS group_size, g.node_count, g.per_node_count, g.fewest_node_count
  FROM groups AS g, domain
  WHERE g.dim = 'ep' AND g.node_count > 1 AND (domain.ranks IS NULL OR g.size IS NULL OR g.size > domain.ranks)
),
traffic AS (
  SELECT
    c.rank,
    c."group"::VARCHAR AS "group",
    SUM(c.exposed_ns - COALESCE(c.exposed_wait_ns, 0)) AS exposed_ns,
    COUNT(c.wait_ns) > 0 AS matched
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.dim = 'ep'
  GROUP BY ALL
),
least AS (
  SELECT
    crossing.*,
    traffic.rank,
    traffic.matched,
    job.scope,
    LEAST(traffic.exposed_ns // job.spans, job.comm_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM job) AS ranks_count
  FROM crossing JOIN traffic USING ("group") JOIN job USING (rank)
  -- Of several ranks the one that waits least: waiting for a late peer is not the link's fault.
  QUALIFY ROW_NUMBER() OVER (ORDER BY lost_ns, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  lost_ns / step_ns AS share_ratio,
  scope,
  "group",
  group_size,
  node_count,
  per_node_count,
  CASE WHEN lost_ns > $critical_share_ratio * step_ns THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END AS confidence_ratio,
  [rank] AS ranks
FROM least
WHERE lost_ns > $min_share_ratio * step_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'no process group is known to be expert-parallel; some are unnamed' AS undecided
WHERE NOT EXISTS (FROM groups WHERE dim = 'ep')
  AND EXISTS (FROM groups WHERE dim_source = 'unknown' AND COALESCE(size, 2) > 1)
