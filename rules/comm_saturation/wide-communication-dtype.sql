/*
title = "Gradients travel wider than the model computes"
severity = "info"
needs = ["mean_steps", "spans", "reductions", "collectives", "gemms"]
needs_values = ["reductions.dtype"]
summary = "gradients{taken} are reduced in {dtype} while the model computes in {compute_dtype}: up to {lost_ns} {scope} of {exposed_ns} exposed"
why = """
Bytes on the wire are time on the wire once messages are large: a 32-bit reduction takes about twice as long as a 16-bit
one. Often this is on purpose: sums over many ranks lose bits in 16 bits."""
fix = """
A trade of bandwidth against numerics, so change it last and watch the loss: FSDP2 MixedPrecisionPolicy(reduce_dtype=
torch.bfloat16), Megatron-LM drop --accumulate-allreduce-grads-in-fp32 (--grad-reduce-in-bf16), DeepSpeed
"communication_data_type": "bf16", DDP the bf16_compress_hook. bfloat16 needs no loss scaling but has 8 bits of
precision: reduction over hundreds of ranks, or accumulation over many micro-batches, wants float32 accumulation. Hide
the reduction first (unhidden-gradients): hidden bytes cost nothing."""
quiet_when = """
the reduction is hidden; messages are small; the model computes in float32 too; element types are not recorded. Where
the dtype of compute is unknown the rule does not answer."""
collect = "collective metadata with element types (PyTorch 2.3 or later records it) and record_shapes=True"
sources = [
  "communication time is proportional to the width of the type: 2(n-1)/n x bytes / bandwidth, https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
  "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (MixedPrecisionPolicy)",
]
[params]
min_size_bytes = { default = 1048576, doc = "below, latency and not width decides (see fine-buckets)" }
min_share_ratio = { default = 0.01, doc = "of the step, gained at best; nobody trades numerics for less" }
warning_share_ratio = { default = 0.05, doc = "of the step, from which it is a warning; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
compute AS (  -- what the matrix products compute in; else what parameters are gathered in
  SELECT COALESCE(
    (SELECT dtype FROM gemms WHERE dtype IS NOT NULL GROUP BY dtype ORDER BY SUM(dur_ns) DESC, dtype LIMIT 1),
    (SELECT dtype FROM collectives WHERE op = 'all_gather' AND dim IN ('dp', 'other') AND dtype IN ('bfloat16', 'float16') LIMIT 1)
  ) AS dtype
),
wide AS (
  SELECT
    r.rank,
    SUM(r.exposed_ns) AS exposed_ns,
    SUM(r.size_bytes) AS size_bytes,
    COUNT(r.wait_ns) > 0 AS matched,
    BOOL_OR(r.evidence = 'assumed') AS assumed
  FROM reductions AS r SEMI JOIN spans AS s ON s.rank = r.rank AND s.step IS NOT DISTINCT FROM r.step
  WHERE r.dtype = 'float32' AND r.size_bytes > $min_size_bytes
  GROUP BY r.rank
),
least AS (
  SELECT
    wide.rank,
    scope,
    matched,
    assumed,
    wide.size_bytes // spans_count AS size_bytes,
    LEAST(exposed_ns // spans_count, comm_ns) AS exposed_ns,
    LEAST(exposed_ns // spans_count, comm_ns) // 2 AS lost_ns,  -- half the bytes, at the same rate
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM wide JOIN job USING (rank)
  ORDER BY lost_ns, rank
  LIMIT 1
)
SELECT
  lost_ns,
  exposed_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  'float32' AS dtype,
  compute.dtype AS compute_dtype,
  CASE WHEN assumed THEN ' (taken for gradients: neither the group nor the phase is recorded)' ELSE '' END AS taken,
  size_bytes,
  [rank] AS ranks,
  CASE WHEN lost_ns > $warning_share_ratio * step_ns THEN 'warning' ELSE 'info' END AS severity,
  CASE WHEN matched THEN 0.7 ELSE 0.5 END * IF(assumed, 0.6, 1.0) AS confidence_ratio,
  CASE WHEN compute.dtype IS NULL THEN 'gradients are reduced in float32; what the model computes in is not recorded' END AS undecided
FROM least, compute
WHERE lost_ns > $min_share_ratio * step_ns
  AND (compute.dtype IN ('bfloat16', 'float16') OR compute.dtype IS NULL)
