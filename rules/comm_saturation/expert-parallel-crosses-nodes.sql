/*
title = "Expert-parallel all-to-all crosses nodes"
severity = "warning"
needs = ["crossings", "groups"]
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
SELECT
  exposed_ns AS lost_ns,
  step_ns,
  exposed_ns / step_ns AS share_ratio,
  scope,
  "group",
  group_size,
  node_count,
  per_node_count,
  CASE WHEN exposed_ns > $critical_share_ratio * step_ns THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END AS confidence_ratio,
  [rank] AS ranks
FROM crossings
WHERE dim = 'ep' AND exposed_ns > $min_share_ratio * step_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'no process group is known to be expert-parallel; some are unnamed' AS undecided
WHERE NOT EXISTS (FROM groups WHERE dim = 'ep')
  AND EXISTS (FROM groups WHERE dim_source = 'unknown' AND COALESCE(size, 2) > 1)
