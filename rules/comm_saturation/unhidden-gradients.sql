/*
title = "Gradient reduction runs with nothing to hide it"
severity = "info"
needs = ["mean_steps", "spans", "reductions", "collectives", "settings"]
needs_values = ["spans.dur_ns"]
summary = "{lost_ns} {scope} ({share_ratio} of the step): {exposed_ratio} of the gradient {op} time{taken} is not under compute; {suspect}{bandwidth}"
why = """
Gradients of the last layers are ready long before those of the first: their reduction can run under the rest of the
backward pass. What runs after it, or alternates with it, is step time lost."""
fix = """
Where one reduction carries all gradients, split it into buckets (DDP does so itself, bucket_cap_mb=25; Megatron-LM
--overlap-grad-reduce with --ddp-bucket-size; DeepSpeed "overlap_comm": true with a smaller "reduce_bucket_size"; FSDP2:
call fully_shard on every block, not only on the root). Alternating with compute: look for a stream wait or a host
synchronise between, and for CUDA_DEVICE_MAX_CONNECTIONS=1, which gives all streams one hardware queue: Megatron-LM's
tensor and sequence parallelism wants 1 before Blackwell, FSDP wants it unset or larger, so it is a conflict where both are used.
With gradient accumulation reduce in the last micro-batch only (DDP no_sync; FSDP2 set_requires_gradient_sync(False)
keeps unsharded gradients: more memory). Smaller buckets cost latency: see fine-buckets."""
quiet_when = """
most of the reduction is under compute, it is a small part of the step, or the group is tensor-, context-, expert- or
pipeline-parallel: those reductions have no independent compute to hide under, and CUDA_DEVICE_MAX_CONNECTIONS=1 is right there"""
sources = [
  "https://docs.pytorch.org/docs/stable/notes/ddp.html (bucketing and overlap)",
  "https://github.com/NVIDIA/Megatron-LM/issues/636 (CUDA_DEVICE_MAX_CONNECTIONS)",
  "https://arxiv.org/abs/2402.15627 (overlap of data-parallel traffic: +1.5 points of MFU)",
  "all-reduce bus bandwidth of 232 to 235 GB/s on A100 NVLink: https://github.com/stas00/ml-engineering (network)",
]
[params]
min_exposed_ratio = { default = 0.5, doc = "of the reduction time: 'mostly exposed'; a guess, to be fitted" }
min_share_ratio = { default = 0.05, doc = "of the step; above the +3.5 % of arXiv 2205.05198 section 6.3 for no overlap at all at 530B; a guess, to be fitted" }
warning_share_ratio = { default = 0.10, doc = "of the step, from which it is a warning, as in comm-share; a guess, to be fitted" }
healthy_busbw_bytes_per_s = { default = 2.0e11, doc = "no fabric at this rate is at fault: 85 % of what A100 NVLink reaches (sources); slower ones are not judged" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns, compute_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
traffic AS (
  SELECT
    r.rank,
    SUM(r.exposed_ns) AS exposed_ns,
    SUM(r.hidden_ns) AS hidden_ns,
    -- Calls side by side: time that another one is charged with says nothing about compute.
    SUM(GREATEST(r.dur_ns - COALESCE(r.wait_ns, 0) - r.beside_ns, r.exposed_ns)) AS dur_ns,
    COUNT(*) AS calls,
    MODE(r.op) AS op,
    BOOL_OR(r.op = 'reduce_scatter') AS sharded,
    MODE(r.blocked_by) FILTER (r.blocked_by <> 'unknown') AS blocked_by,
    SUM(r.busbw_bytes_per_s * r.dur_ns) / SUM(r.dur_ns) FILTER (r.busbw_bytes_per_s IS NOT NULL) AS busbw_bytes_per_s,
    COUNT(r.wait_ns) > 0 AS matched,
    BOOL_OR(r.evidence = 'assumed') AS assumed
  FROM reductions AS r SEMI JOIN spans AS s ON s.rank = r.rank AND s.step IS NOT DISTINCT FROM r.step
  GROUP BY r.rank
),
least AS (  -- of several ranks the one that waits least: a late peer is not the reduction's fault
  SELECT
    traffic.*,
    scope,
    spans_count,
    -- Overlapping calls cost once, and no more can be hidden than there is compute.
    LEAST(exposed_ns // spans_count, comm_ns, compute_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM job) AS ranks_count
  FROM traffic JOIN job USING (rank)
  ORDER BY lost_ns, rank
  LIMIT 1
),
one_queue AS (
  -- Where tensor parallelism runs the setting is wanted; whether FSDP suffers from it there is not told here.
  SELECT
    EXISTS (FROM settings WHERE key LIKE '%CUDA_DEVICE_MAX_CONNECTIONS' AND TRIM(value) = '1')
    AND NOT EXISTS (FROM collectives WHERE dim = 'tp') AS is_set
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  exposed_ns / dur_ns AS exposed_ratio,
  CASE WHEN op = 'reduce_scatter' THEN 'reduce-scatter' ELSE 'all-reduce' END AS op,
  CASE WHEN assumed THEN ' (taken for gradients: neither the group nor the phase is recorded)' ELSE '' END AS taken,
  calls / spans_count AS calls_count,
  blocked_by,
  busbw_bytes_per_s,
  CASE
    WHEN is_set AND sharded AND hidden_ns = 0
      THEN 'CUDA_DEVICE_MAX_CONNECTIONS=1 is set and none of it overlaps: the first suspect for sharded data parallelism'
    WHEN calls <= spans_count THEN 'it is one call for all gradients, which can only start when the last is ready'
    WHEN blocked_by = 'same_stream' THEN 'it runs on the stream of the compute'
    WHEN blocked_by = 'stream_wait' THEN 'compute waits for it'
    WHEN blocked_by = 'launched_late' THEN 'it was launched late'
    WHEN blocked_by = 'no_compute_left' THEN 'no compute was left to run beside it'
    ELSE 'the recording does not show why'
  END AS suspect,
  CASE WHEN busbw_bytes_per_s > $healthy_busbw_bytes_per_s THEN '; its bus bandwidth is healthy, so this is no network fault' ELSE '' END AS bandwidth,
  CASE WHEN lost_ns > $warning_share_ratio * step_ns THEN 'warning' ELSE 'info' END AS severity,
  [rank] AS ranks,
  (CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END) * IF(assumed, 0.6, 1.0) AS confidence_ratio
FROM least, one_queue
WHERE exposed_ns > $min_exposed_ratio * dur_ns
  AND lost_ns > $min_share_ratio * step_ns
