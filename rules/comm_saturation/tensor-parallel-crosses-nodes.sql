/*
title = "A tensor-parallel group spans several nodes"
severity = "warning"
needs = ["crossings", "groups"]
needs_values = ["groups.node_count"]
summary = "the tensor-parallel group {group} of {group_size} ranks spans {node_count} nodes; its exposed communication takes {lost_ns} {scope} ({share_ratio})"
why = """
Tensor parallelism talks in every layer, between dependent operations, and can hide little. Links between nodes are
about ten times slower than those inside one."""
fix = """
Tensor parallelism inside a node: at most as many ranks as a node (or rack-scale fast domain) has GPUs, and the fastest
dimension of the rank order (Megatron-LM's default order is tp-cp-ep-dp-pp; torchtitan and DeviceMesh: tp last in the
mesh). If the model does not fit then, pipeline parallelism or sharding (FSDP2, ZeRO-3) across nodes. On a rack-scale
domain say cluster.fast_domain in job.toml."""
quiet_when = "the group stays on one node or in one fast domain (an NVL72 rack), or its traffic is hidden; nodes are unknown"
collect = "a job.toml with [cluster] gpus_per_node, or host names in the inputs"
sources = [
  "keep tensor parallelism inside a node: https://arxiv.org/abs/2104.04473 (takeaway 1)",
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
WHERE dim = 'tp' AND exposed_ns > $min_share_ratio * step_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'no process group is known to be tensor-parallel; some are unnamed' AS undecided
WHERE NOT EXISTS (FROM groups WHERE dim = 'tp')
  AND EXISTS (FROM groups WHERE dim_source = 'unknown' AND COALESCE(size, 2) > 1)
