/*
title = "Communication buffers take a large share of the memory"
severity = "warning"
needs = ["memory_parts"]
needs_values = ["memory_parts.bytes"]
summary = "rank {rank}, device {device}, at {moment}: {held_bytes} of {allocated_bytes} allocated ({share_ratio}) are communication buffers{place}"
why = """
Gathered parameters, gradient buckets and dispatch buffers live beside the shards they come from. They grow with the size of
one sharded unit and with how many of them are in flight, not with the share that a rank owns."""
fix = """
Gather less at once: FSDP2 fully_shard per block and reshard_after_forward=True, fewer prefetched units
(set_modules_to_forward_prefetch), DeepSpeed smaller stage3_max_live_parameters and stage3_prefetch_bucket_size, Megatron-LM
smaller --ddp-bucket-size, DDP gradient_as_bucket_view=True. Each gives up some overlap of communication."""
quiet_when = "buffers are a small share of the allocated memory"
collect = "a CUDA memory snapshot with stacks, taken at the failure or over a whole step"
sources = ["https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"]
[params]
min_share_ratio = { default = 0.15, doc = "of the allocated memory; two gathered blocks of a usual model are less; a guess, to be fitted" }
*/
WITH whole AS (
  SELECT rank, device, moment, failure,
    SUM(bytes) FILTER (part::VARCHAR NOT IN ('fragmentation', 'cached', 'non_torch')) AS allocated_bytes
  FROM memory_parts
  GROUP BY ALL
)
SELECT
  0 AS lost_ns,
  p.bytes AS lost_bytes,
  CASE WHEN p.moment::VARCHAR = 'oom' THEN 'warning' ELSE 'info' END AS severity,
  COALESCE(p.confidence_ratio, 0.5) AS confidence_ratio,
  p.rank,
  [p.rank] AS ranks,
  p.device,
  p.moment::VARCHAR AS moment,
  p.bytes AS held_bytes,
  w.allocated_bytes,
  p.bytes / w.allocated_bytes AS share_ratio,
  CASE WHEN p.top_place IS NULL THEN '' ELSE ', most of them made at ' || p.top_place END AS place
FROM memory_parts AS p JOIN whole AS w
  ON w.rank IS NOT DISTINCT FROM p.rank AND w.device IS NOT DISTINCT FROM p.device
  AND w.moment::VARCHAR = p.moment::VARCHAR AND w.failure IS NOT DISTINCT FROM p.failure
WHERE COALESCE(p.whole, true) AND p.part::VARCHAR = 'comm_buffers' AND p.moment::VARCHAR IN ('oom', 'peak')
  AND p.bytes > $min_share_ratio * w.allocated_bytes
