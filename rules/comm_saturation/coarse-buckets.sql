/*
title = "One bucket holds most of the gradients"
severity = "info"
needs = ["mean_steps", "spans", "reductions"]
needs_values = ["reductions.size_bytes"]
summary = "{lost_ns} {scope}: one {op} of {size_bytes} carries {bytes_ratio} of the gradient bytes{taken} and {exposed_ratio} of it is exposed{bandwidth}"
why = """
A bucket can only be sent when its last gradient is ready. If one bucket holds most of them, its transfer starts at the
end of the backward pass and nothing is left to hide it."""
fix = """
Split it: DDP bucket_cap_mb=25 (a hand-written all-reduce over flattened gradients gives this away), Megatron-LM
--ddp-bucket-size (its default grows with the data-parallel size), DeepSpeed "reduce_bucket_size" (default 5e8 elements)
with "overlap_comm": true, FSDP2 fully_shard on every block. Each bucket costs one latency: below about 1 MiB per bucket
it gets slower again (fine-buckets)."""
quiet_when = "the large bucket is hidden, small, or one of several alike; the sizes of calls are not recorded"
sources = [
  "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html (bucket_cap_mb)",
  "https://github.com/NVIDIA/Megatron-LM core/distributed (bucket of max(40M, 1M x data-parallel size) parameters)",
  "https://www.deepspeed.ai/docs/config-json/ (reduce_bucket_size)",
]
[params]
min_bytes_ratio = { default = 0.5, doc = "of the step's gradient bytes in one call: most of them" }
min_exposed_ratio = { default = 0.5, doc = "of that call's time: 'mostly exposed'; a guess, to be fitted" }
min_share_ratio = { default = 0.05, doc = "of the step, as in unhidden-gradients; a guess, to be fitted" }
warning_share_ratio = { default = 0.10, doc = "of the step, from which it is a warning, as in comm-share; a guess, to be fitted" }
bucket_bytes = { default = 26214400, doc = "a usual bucket: DDP's default of 25 MiB; its own tail stays exposed and is not counted as lost" }
healthy_busbw_bytes_per_s = { default = 2.0e11, doc = "as in unhidden-gradients: 85 % of what A100 NVLink reaches" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns, compute_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
calls AS (
  SELECT
    r.*,
    r.size_bytes / SUM(r.size_bytes) OVER (PARTITION BY r.rank, r.step) AS bytes_ratio
  FROM reductions AS r SEMI JOIN spans AS s ON s.rank = r.rank AND s.step IS NOT DISTINCT FROM r.step
),
large AS (
  SELECT
    rank,
    MODE(op) AS op,
    ARG_MAX(size_bytes, exposed_ns) AS size_bytes,
    AVG(bytes_ratio) AS bytes_ratio,
    SUM(exposed_ns) AS exposed_ns,
    SUM(dur_ns) - COALESCE(SUM(wait_ns), 0) AS dur_ns,
    SUM(exposed_ns * (1 - $bucket_bytes / size_bytes)) AS avoidable_ns,
    MAX(busbw_bytes_per_s) AS busbw_bytes_per_s,
    COUNT(wait_ns) > 0 AS matched,
    BOOL_OR(evidence = 'assumed') AS assumed
  FROM calls
  WHERE bytes_ratio > $min_bytes_ratio AND size_bytes > $bucket_bytes
  GROUP BY rank
),
least AS (
  SELECT
    large.*,
    scope,
    -- No more than the compute it could run under.
    FLOOR(LEAST(avoidable_ns / spans_count, comm_ns, compute_ns)) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM job) AS ranks_count
  FROM large JOIN job USING (rank)
  ORDER BY lost_ns, rank
  LIMIT 1
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  CASE WHEN op = 'reduce_scatter' THEN 'reduce-scatter' ELSE 'all-reduce' END AS op,
  CASE WHEN assumed THEN ' (taken for gradients: neither the group nor the phase is recorded)' ELSE '' END AS taken,
  size_bytes,
  bytes_ratio,
  exposed_ns / dur_ns AS exposed_ratio,
  busbw_bytes_per_s,
  CASE WHEN busbw_bytes_per_s > $healthy_busbw_bytes_per_s THEN '; its bus bandwidth is healthy, so this is no network fault' ELSE '' END AS bandwidth,
  CASE WHEN lost_ns > $warning_share_ratio * step_ns THEN 'warning' ELSE 'info' END AS severity,
  [rank] AS ranks,
  (CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END) * IF(assumed, 0.6, 1.0) AS confidence_ratio
FROM least
WHERE exposed_ns > $min_exposed_ratio * dur_ns
  AND lost_ns > $min_share_ratio * step_ns
