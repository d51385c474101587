/*
title = "Gradients travel in many small pieces"
severity = "info"
needs = ["mean_steps", "spans", "reductions"]
needs_values = ["reductions.size_bytes"]
summary = "{lost_ns} {scope} in {calls_count} gradient reductions{taken} of at most {largest_bytes}: each costs a latency whatever its size"
why = """
A collective costs a fixed latency (tens of microseconds on one node, more across nodes) before the first byte counts.
Gradients sent one parameter at a time pay it hundreds of times."""
fix = """
Merge them: DDP bucket_cap_mb (25 is the default; a hook or a hand-written loop over parameters bypasses it), Megatron-LM
--ddp-bucket-size, DeepSpeed "reduce_bucket_size", FSDP2 fully_shard on blocks instead of single layers; in your own code
torch.distributed._coalescing_manager or one flat buffer. Buckets that are too large hide nothing: see coarse-buckets."""
quiet_when = "few such calls, or they are hidden; the sizes of calls are not recorded"
sources = [
  "latency of an 8 x H100 all-reduce about 16 us, against 4 us of transfer at 1 MiB: fit to nccl-tests sweeps of https://github.com/aws-samples/awsome-distributed-training",
  "https://docs.pytorch.org/docs/stable/notes/ddp.html",
]
[params]
max_size_bytes = { default = 1048576, doc = "up to here latency outweighs transfer (sources); also DDP's first bucket" }
min_calls_count = { default = 32, doc = "such calls per step; a guess, to be fitted" }
min_share_ratio = { default = 0.03, doc = "of the step; a guess, to be fitted" }
warning_share_ratio = { default = 0.10, doc = "of the step, from which it is a warning, as in comm-share; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
small AS (
  SELECT
    r.rank,
    COUNT(*) AS calls,
    MAX(r.size_bytes) AS largest_bytes,
    SUM(r.exposed_ns) AS exposed_ns,
    MEDIAN(r.dur_ns) AS median_ns,
    COUNT(r.wait_ns) > 0 AS matched,
    BOOL_OR(r.evidence = 'assumed') AS assumed
  FROM reductions AS r SEMI JOIN spans AS s ON s.rank = r.rank AND s.step IS NOT DISTINCT FROM r.step
  WHERE r.size_bytes <= $max_size_bytes
  GROUP BY r.rank
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
  CASE WHEN assumed THEN ' (taken for gradients: neither the group nor the phase is recorded)' ELSE '' END AS taken,
  calls / spans_count AS calls_count,
  largest_bytes,
  median_ns,
  CASE WHEN lost_ns > $warning_share_ratio * step_ns THEN 'warning' ELSE 'info' END AS severity,
  [rank] AS ranks,
  (CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END) * IF(assumed, 0.6, 1.0) AS confidence_ratio
FROM least
WHERE calls > $min_calls_count * spans_count
  AND lost_ns > $min_share_ratio * step_ns
