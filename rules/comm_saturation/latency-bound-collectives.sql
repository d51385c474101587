/*
title = "Small collectives cost latency, not bandwidth"
severity = "info"
needs = ["mean_steps", "spans", "collectives"]
needs_values = ["collectives.size_bytes"]
summary = "{lost_ns} {scope} ({share_ratio}) in {calls_count} exposed collectives of at most {largest_bytes}, most often {main_op}"
why = """
At a few kilobytes the time of a collective is its latency, which grows with the number of ranks; a faster link does
not help."""
fix = """
Send less often: merge calls (one flat tensor for all metrics, one all-reduce for the gradient norm of all groups),
log every n steps, reduce metrics asynchronously (async_op=True, read a step later). Megatron-LM: --log-interval;
DeepSpeed: "steps_per_print", larger "reduce_bucket_size"; DDP: bucket_cap_mb; FSDP2: fully_shard larger units. Within a node, symmetric-memory
(torch.distributed._symmetric_memory) and NCCL's LL protocols are quickest; across nodes let NCCL choose: do not force
NCCL_ALGO or NCCL_PROTO."""
quiet_when = """
they are hidden, few, or so long that waiting for another rank explains them better than latency; sizes are not recorded"""
sources = [
  "small-message latency 13 us (8 x H100), about 70 us (2 nodes p5), 160 us (2 nodes p4de): nccl-tests sweeps of https://github.com/aws-samples/awsome-distributed-training",
]
[params]
max_size_bytes = { default = 131072, doc = "transfer at this size is below a tenth of the latency on 8 x H100 (16 us against 0.5 us)" }
max_dur_ns = { default = 500_000, doc = "three times the largest latency in the sources; a longer small call waits for someone" }
min_share_ratio = { default = 0.05, doc = "of the step; a guess, to be fitted" }
warning_share_ratio = { default = 0.10, doc = "of the step, from which it is a warning, as in comm-share; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
small AS (
  SELECT
    c.rank,
    COUNT(*) AS calls,
    MODE(c.op) AS main_op,
    MAX(c.size_bytes) AS largest_bytes,
    MEDIAN(c.dur_ns) AS median_ns,
    SUM(LEAST(c.exposed_ns, COALESCE(c.transfer_ns, c.exposed_ns))) AS exposed_ns,
    COUNT(c.wait_ns) > 0 AS matched
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.size_bytes <= $max_size_bytes AND c.dur_ns <= $max_dur_ns AND c.exposed_ns > 0
  GROUP BY c.rank
),
least AS (
  SELECT
    small.*,
    scope,
    spans_count,
    LEAST(exposed_ns // spans_count, comm_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM job) AS ranks_count
  FROM small JOIN job USING (rank)
  ORDER BY lost_ns, rank
  LIMIT 1
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  calls / spans_count AS calls_count,
  main_op,
  largest_bytes,
  median_ns,
  CASE WHEN lost_ns > $warning_share_ratio * step_ns THEN 'warning' ELSE 'info' END AS severity,
  [rank] AS ranks,
  CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END AS confidence_ratio
FROM least
WHERE lost_ns > $min_share_ratio * step_ns
