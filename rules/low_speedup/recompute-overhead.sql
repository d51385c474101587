/*
title = "The forward pass is computed again in the backward pass"
severity = "warning"
needs = ["mean_steps", "spans", "recompute"]
needs_values = ["spans.dur_ns"]
summary = "rank {rank}: {lost_ns} of {step_ns} {scope} ({share_ratio}) recomputes activations: {again_ratio} of the forward pass runs twice"
why = """
Activation checkpointing trades time for memory. Recomputing everything costs 30 to 40 % of forward and backward together,
recomputing only what is large and cheap a few percent. Whether the memory is needed is not known from time alone."""
fix = """
If memory is free at the peak, recompute less: Megatron-LM --recompute-granularity selective instead of full, or
--recompute-num-layers for some layers; torchtitan activation_checkpoint.mode = "selective"; DeepSpeed / DDP: checkpoint
fewer blocks, or torch.utils.checkpoint with create_selective_checkpoint_contexts to keep the matrix products. With
FlashAttention recomputing the attention core saves nothing. Other ways to the same memory: sequence or context
parallelism, ZeRO, a smaller micro-batch, offloading. All of it costs memory: look at the peak first."""
quiet_when = "recomputation is selective and cheap, or was not recorded"
sources = [
  "full recompute +30 to +40 % of forward and backward, selective 2 to 4 %: https://arxiv.org/abs/2205.05198 table 4",
]
[params]
min_share_ratio = { default = 0.10, doc = "of the step: between selective (2 to 4 %) and full (about a quarter of the step); a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, compute_ns FROM mean_steps
),
again AS (
  SELECT r.rank, SUM(r.busy_ns) AS busy_ns, SUM(r.forward_ns) AS forward_ns, SUM(r.kernels_count) AS kernels_count, MODE(r.evidence) AS told_by
  FROM recompute AS r SEMI JOIN spans AS s ON s.rank = r.rank AND s.step IS NOT DISTINCT FROM r.step
  GROUP BY r.rank
),
worst AS (
  SELECT
    again.*,
    scope,
    spans_count,
    LEAST(busy_ns // spans_count, compute_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM again JOIN job USING (rank)
  ORDER BY lost_ns DESC, rank
  LIMIT 1
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  rank,
  [rank] AS ranks,
  busy_ns / NULLIF(forward_ns, 0) AS again_ratio,
  kernels_count // spans_count AS kernels_count,
  told_by,
  0.5 AS confidence_ratio
FROM worst
WHERE lost_ns > $min_share_ratio * step_ns
