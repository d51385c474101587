/*
title = "The peak is in the loss, outside what recomputation reaches"
severity = "warning"
needs = ["memory_parts"]
needs_values = ["memory_parts.bytes"]
summary = "rank {rank}, device {device}, at {moment}: {held_bytes} of {allocated_bytes} allocated ({share_ratio}) belong to the loss or output layer, made at {top_place}; the other activations hold {rest_bytes}"
why = """
Logits and their gradient (4 to 10 bytes per token and vocabulary entry) are alive together at the start of backward. Layers that
are checkpointed come before and after, so checkpointing more of them does not move this peak."""
fix = """
Chunk the loss over tokens (torchtitan loss chunks, Liger fused linear cross entropy), keep logits in 16 bit, compute the
loss over vocabulary shards (Megatron-LM cross entropy over tensor-parallel ranks), or fewer tokens per micro-batch. Recomputing layers
(torch.utils.checkpoint) saves at most the other activations."""
quiet_when = "the loss holds a small share of the peak"
collect = "a CUDA memory snapshot with stacks, taken at the failure or over a whole step"
sources = ["https://github.com/pytorch/pytorch/issues/78731", "https://arxiv.org/abs/2205.05198 section 4.3"]
[params]
min_share_ratio = { default = 0.25, doc = "of the allocated memory in the loss; a guess, to be fitted" }
max_loss_count = { default = 16, doc = "allocations that make up a loss; many more at one line are a leak, not a peak; a guess" }
*/
WITH whole AS (
  SELECT rank, device, moment, failure,
    SUM(bytes) FILTER (part::VARCHAR NOT IN ('fragmentation', 'cached', 'non_torch')) AS allocated_bytes
  FROM memory_parts
  GROUP BY ALL
)
SELECT
  0 AS lost_ns,
  p.loss_bytes AS lost_bytes,
  CASE WHEN p.moment::VARCHAR = 'oom' THEN 'warning' ELSE 'info' END AS severity,
  COALESCE(p.confidence_ratio, 0.5) AS confidence_ratio,
  p.rank,
  [p.rank] AS ranks,
  p.device,
  p.moment::VARCHAR AS moment,
  p.loss_bytes AS held_bytes,
  w.allocated_bytes,
  p.loss_bytes / w.allocated_bytes AS share_ratio,
  p.bytes - p.loss_bytes AS rest_bytes,
  p.top_place
FROM memory_parts AS p JOIN whole AS w
  ON w.rank IS NOT DISTINCT FROM p.rank AND w.device IS NOT DISTINCT FROM p.device
  AND w.moment::VARCHAR = p.moment::VARCHAR AND w.failure IS NOT DISTINCT FROM p.failure
WHERE COALESCE(p.whole, true) AND p.part::VARCHAR = 'activations' AND p.moment::VARCHAR IN ('oom', 'peak')
  AND p.loss_bytes > $min_share_ratio * w.allocated_bytes AND p.loss_count <= $max_loss_count
