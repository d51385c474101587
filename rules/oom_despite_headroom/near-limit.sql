/*
title = "The device is full, or nearly so"
severity = "critical"
needs = ["memory_moments"]
needs_values = ["memory_moments.allocated_bytes"]
decides = true
summary = "rank {rank}, device {device}: {what} {held_bytes} of {room_bytes} ({full_ratio}), with {unallocated_bytes} reserved but unallocated{neighbour}"
why = """
Almost all memory holds live tensors. No allocator setting helps: the hint that PyTorch prints with every such message does not
apply here."""
fix = """
Keep less. What fills it is in the memory parts: if model state, shard it further (ZeRO stage, FSDP reshard_after_forward,
Megatron-LM --use-distributed-optimizer) or offload it; if activations, recompute, smaller micro-batch, sequence or context
parallel; if one loss tensor, chunk it. Leave 5 to 10 % of the device free for peaks and for NCCL."""
quiet_when = "the failed request would fit a perfect allocator, or others than live tensors hold the memory"
collect = "the whole out-of-memory message, or a CUDA memory snapshot taken at the failure"
sources = ["https://github.com/pytorch/pytorch/issues/173049"]
[params]
min_near_ratio = { default = 0.95, doc = "of the device reserved or in use without a failure; the usual advice is to leave 5 % free" }
min_full_ratio = { default = 0.9, doc = "allocated share of what this process could have; a guess, to be fitted" }
max_other_ratio = { default = 0.05, doc = "of the device in other processes; above, they are the finding; a guess, to be fitted" }
*/
WITH failed AS (
  SELECT *, COALESCE(limit_bytes, capacity_bytes, reserved_bytes + device_free_bytes) AS room_bytes,
    COALESCE(other_bytes, 0) AS others_bytes
  FROM memory_moments
  WHERE moment::VARCHAR = 'oom' AND allocator::VARCHAR = 'pytorch' AND allocated_bytes IS NOT NULL
)
SELECT * FROM (
SELECT
  0 AS lost_ns,
  GREATEST(0, tried_bytes - COALESCE(recoverable_bytes, 0)) AS lost_bytes,
  'critical' AS severity,
  rank,
  LIST(rank) OVER () AS ranks,
  device,
  'memory is truly full: live tensors hold' AS what,
  allocated_bytes AS held_bytes,
  tried_bytes,
  room_bytes,
  allocated_bytes / room_bytes AS full_ratio,
  unallocated_bytes,
  device_free_bytes,
  non_torch_bytes,
  other_bytes,
  other_process,
  expandable,
  '; the failed request was ' || round(tried_bytes / 1073741824.0, 2) || ' GiB' || CASE WHEN other_bytes > 0
    THEN '; process ' || other_process || ' holds ' || round(other_largest_bytes / 1073741824.0, 2) || ' GiB beside it'
    ELSE '' END || CASE WHEN COUNT(*) OVER () > 1
    THEN ' (the worst of ' || COUNT(*) OVER () || ' alike)' ELSE '' END AS neighbour,
  NULL AS undecided
FROM failed
WHERE allocated_bytes > $min_full_ratio * room_bytes
  AND others_bytes <= $max_other_ratio * room_bytes
QUALIFY ROW_NUMBER() OVER (ORDER BY lost_bytes DESC, full_ratio DESC, rank) = 1
)
UNION ALL BY NAME
SELECT
  0 AS lost_ns,
  0 AS lost_bytes,
  'warning' AS severity,
  rank,
  [rank] AS ranks,
  device,
  'without a failure, reserved or in use at the peak are' AS what,
  GREATEST(COALESCE(used_bytes, 0), reserved_bytes) AS held_bytes,
  capacity_bytes AS room_bytes,
  GREATEST(COALESCE(used_bytes, 0), reserved_bytes) / capacity_bytes AS full_ratio,
  unallocated_bytes,
  '' AS neighbour,
  NULL AS undecided
FROM memory_moments AS m
WHERE moment::VARCHAR = 'peak' AND allocated_bytes > $min_full_ratio * capacity_bytes
  AND GREATEST(COALESCE(used_bytes, 0), reserved_bytes) > $min_near_ratio * capacity_bytes
  AND NOT EXISTS (FROM failed AS f WHERE f.rank IS NOT DISTINCT FROM m.rank)
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'no failure was recorded, and the size of the device is not known' AS undecided
WHERE NOT EXISTS (FROM memory_moments WHERE moment::VARCHAR = 'oom')
  AND NOT EXISTS (FROM memory_moments WHERE capacity_bytes IS NOT NULL AND reserved_bytes IS NOT NULL)
