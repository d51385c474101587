/*
title = "Gathering and scattering shards outweighs the compute that should hide it"
severity = "warning"
needs = ["mean_steps", "spans", "collectives", "groups"]
needs_values = ["spans.dur_ns"]
summary = "{lost_ns} of {step_ns} {scope} ({share_ratio}) is exposed all-gather and reduce-scatter of a group of {group_size} ranks{where}{moved}"
why = """
Fully sharded parameters are gathered in the forward and again in the backward pass, and their gradients scattered: 3x
the parameter bytes per step, half as much again as plain data parallelism, and the gathers repeat for every micro-batch.
A flat shard group sends all of it over the slowest link that the group spans."""
fix = """
Shard inside a node and replicate across nodes (HSDP, hybrid sharding): FSDP2 fully_shard with a 2-D mesh, FSDP1
ShardingStrategy.HYBRID_SHARD, torchtitan data_parallel_replicate_degree and data_parallel_shard_degree, DeepSpeed
"zero_hpz_partition_size" (ZeRO++) or MiCS, Megatron-LM --num-distributed-optimizer-instances. It trades memory for
bandwidth: each node then holds a full copy of the sharded state, so per GPU parameters, gradients and optimizer state
take (shard group before / after) times the memory. If memory allows within a node: keep parameters gathered between
forward and backward (FSDP2 reshard_after_forward=False, ZeRO-2), which saves one of the two gathers. More work per
gather helps without memory for state: a larger micro-batch. Wrap blocks, not single layers, and check the prefetch."""
quiet_when = """
most of it runs under compute; the group is tensor-parallel (with sequence parallelism it gathers and scatters too);
only gathers or only scatters were recorded"""
sources = [
  "3x against 2x the parameter bytes: https://arxiv.org/abs/1910.02054 (ZeRO)",
  "flat sharding across nodes, 1.34x from hybrid sharding in one report: https://github.com/pytorch/pytorch/issues/102434, https://github.com/ecmwf/WeatherGenerator/pull/1246",
  "2271 against 3625 tokens/s/GPU at 1024 GPUs with the optimizer sharded globally or in the node: https://github.com/InternLM/InternEvo",
]
[params]
min_share_ratio = { default = 0.20, doc = "of the step; twice comm-share's threshold, as HSDP costs memory; a guess, to be fitted" }
min_gathers_ratio = { default = 0.5, doc = "gathered bytes (calls, where sizes are unknown) over scattered ones; below, the gathers are incidental" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
traffic AS (
  SELECT
    c.rank,
    c."group",
    MAX(c.group_size) AS group_size,
    SUM(LEAST(c.exposed_ns, COALESCE(c.transfer_ns, c.exposed_ns))) AS exposed_ns,
    SUM(LEAST(c.exposed_ns, COALESCE(c.transfer_ns, c.exposed_ns))) FILTER (c.op = 'all_gather') AS gather_ns,
    SUM(c.size_bytes) AS moved_bytes,
    COALESCE(
      SUM(c.size_bytes) FILTER (c.op = 'all_gather') / SUM(c.size_bytes) FILTER (c.op = 'reduce_scatter'),
      COUNT(*) FILTER (c.op = 'all_gather') / NULLIF(COUNT(*) FILTER (c.op = 'reduce_scatter'), 0)
    ) AS gathers_ratio,
    SUM(c.busbw_bytes_per_s * c.dur_ns) / SUM(c.dur_ns) FILTER (c.busbw_bytes_per_s IS NOT NULL) AS busbw_bytes_per_s,
    COUNT(c.wait_ns) > 0 AS matched,
    c.dim
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.dim IN ('dp', 'other') AND c.op IN ('all_gather', 'reduce_scatter')
  GROUP BY c.rank, c."group", c.dim
  -- FSDP scatters gradients in the backward pass only: a scatter in the forward pass is sequence parallelism.
  HAVING COALESCE(BOOL_AND(c.phase IS DISTINCT FROM 'forward') FILTER (c.op = 'reduce_scatter'), FALSE)
),
least AS (
  SELECT
    traffic.*,
    g.node_count,
    scope,
    spans_count,
    -- Inside one node only the second gather can be saved; across nodes, or unknown, all of it may leave the slow link.
    LEAST(CASE WHEN g.node_count = 1 THEN gather_ns // 2 ELSE exposed_ns END // spans_count, comm_ns) AS lost_ns,
    LEAST(exposed_ns // spans_count, comm_ns) AS exposed_per_step_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM job) AS ranks_count
  FROM traffic
  JOIN job USING (rank)
  LEFT JOIN (SELECT "group", ANY_VALUE(node_count) AS node_count FROM groups GROUP BY "group") AS g ON g."group" = traffic."group"
  -- Per group the rank that waits least.
  QUALIFY ROW_NUMBER() OVER (PARTITION BY traffic."group" ORDER BY exposed_per_step_ns, rank) = 1
)
SELECT
  lost_ns,
  exposed_per_step_ns AS exposed_ns,
  step_ns,
  scope,
  exposed_per_step_ns / step_ns AS share_ratio,
  "group",
  dim,
  group_size,
  node_count,
  moved_bytes // spans_count AS moved_bytes,
  gathers_ratio,
  busbw_bytes_per_s,
  CASE
    WHEN node_count > 1 THEN ' that spans ' || node_count || ' nodes'
    WHEN node_count = 1 THEN ' inside one node'
    ELSE '; how many nodes it spans is unknown (give [cluster] gpus_per_node in a job.toml)'
  END AS where,
  CASE
    WHEN busbw_bytes_per_s IS NULL THEN ''
    WHEN matched THEN PRINTF('; bus bandwidth %.3g GB/s', busbw_bytes_per_s / 1e9)
    ELSE PRINTF('; bus bandwidth %.3g GB/s or better, as waiting is included', busbw_bytes_per_s / 1e9)
  END AS moved,
  [rank] AS ranks,
  (CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END) * (CASE WHEN dim = 'dp' THEN 1.0 ELSE 0.8 END)
    AS confidence_ratio
FROM least
WHERE exposed_per_step_ns > $min_share_ratio * step_ns
  AND gathers_ratio > $min_gathers_ratio
