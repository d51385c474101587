/*
title = "Model state holds most of the memory"
severity = "warning"
needs = ["memory_parts", "memory_moments"]
needs_values = ["memory_parts.bytes"]
summary = "rank {rank}, device {device}, at {moment}: {held_bytes} of {allocated_bytes} allocated ({share_ratio}) are model state ({parameters_bytes} parameters, {gradients_bytes} gradients, {optimizer_bytes} optimizer); activations hold at most {most_activations_bytes}, so recomputing them would not help"
why = """
Parameters, gradients and optimizer states live through the whole step on every rank that is not sharded: 16 to 20 bytes per
parameter with Adam in mixed precision. A smaller batch leaves them as they are."""
fix = """
Shard it: FSDP2 fully_shard with reshard_after_forward=True, DeepSpeed ZeRO stage 2 or 3, Megatron-LM --use-distributed-optimizer,
or more tensor or pipeline parallelism; all cost communication. An 8-bit optimizer or CPU offload trades precision or time."""
quiet_when = "other parts hold as much, or too little of the memory can be told apart"
collect = "a CUDA memory snapshot with stacks, taken at the failure or over a whole step"
sources = ["https://arxiv.org/abs/1910.02054"]
[params]
min_share_ratio = { default = 0.5, doc = "of the allocated memory: more than everything else together" }
min_known_ratio = { default = 0.5, doc = "of the allocated memory whose part is known; below, no verdict" }
*/
WITH parts AS (
  SELECT
    rank, device, moment::VARCHAR AS moment, failure,
    SUM(bytes) FILTER (part::VARCHAR NOT IN ('fragmentation', 'cached', 'non_torch', 'unknown')) AS known_bytes,
    SUM(bytes) FILTER (part::VARCHAR NOT IN ('fragmentation', 'cached', 'non_torch')) AS allocated_bytes,
    COALESCE(SUM(bytes) FILTER (part::VARCHAR = 'parameters'), 0) AS parameters_bytes,
    COALESCE(SUM(bytes) FILTER (part::VARCHAR = 'gradients'), 0) AS gradients_bytes,
    COALESCE(SUM(bytes) FILTER (part::VARCHAR = 'optimizer'), 0) AS optimizer_bytes,
    COALESCE(SUM(bytes) FILTER (part::VARCHAR = 'activations'), 0) AS activations_bytes,
    COALESCE(SUM(bytes) FILTER (part::VARCHAR = 'unknown'), 0) AS unknown_bytes,
    COALESCE(MAX(loss_bytes) FILTER (part::VARCHAR = 'activations'), 0) AS loss_bytes,
    ANY_VALUE(top_place) FILTER (part::VARCHAR = 'activations') AS top_place,
    MIN(confidence_ratio) FILTER (part::VARCHAR IN ('parameters', 'gradients', 'optimizer', 'activations')) AS sure
  FROM memory_parts
  WHERE COALESCE(whole, true)  -- a trace of host memory sees only what was made since it began
  GROUP BY ALL
),
tight AS (  -- at a failure that no allocator could have avoided, what holds the memory is the cause
  SELECT rank, device, moment::VARCHAR AS moment, failure, tried_bytes > recoverable_bytes AS is_full
  FROM memory_moments
),
judged AS (
  SELECT *, parameters_bytes + gradients_bytes + optimizer_bytes AS state_bytes,
    parameters_bytes + gradients_bytes + optimizer_bytes + unknown_bytes AS most_state_bytes,  -- unknown can be all of it
    activations_bytes + unknown_bytes AS most_activations_bytes
  FROM parts
  WHERE moment IN ('oom', 'peak') AND known_bytes > $min_known_ratio * allocated_bytes
    AND (moment = 'oom' OR NOT EXISTS (
      FROM parts AS p WHERE p.moment = 'oom' AND p.rank IS NOT DISTINCT FROM parts.rank AND p.device IS NOT DISTINCT FROM parts.device
    ))
)
SELECT
  0 AS lost_ns,
  state_bytes AS lost_bytes,
  CASE WHEN f.is_full THEN 'warning' ELSE 'info' END AS severity,
  COALESCE(sure, 0.5) AS confidence_ratio,
  j.rank,
  [j.rank] AS ranks,
  j.device,
  j.moment,
  state_bytes AS held_bytes,
  allocated_bytes,
  state_bytes / allocated_bytes AS share_ratio,
  activations_bytes,
  state_bytes,
  most_activations_bytes,
  parameters_bytes,
  gradients_bytes,
  optimizer_bytes,
  CASE WHEN top_place IS NULL THEN '' ELSE ', most of them made at ' || top_place END AS place,
  NULL AS undecided
FROM judged AS j LEFT JOIN tight AS f
  ON f.rank IS NOT DISTINCT FROM j.rank AND f.device IS NOT DISTINCT FROM j.device AND f.moment = j.moment
  AND f.failure IS NOT DISTINCT FROM j.failure
WHERE state_bytes > most_activations_bytes AND state_bytes > $min_share_ratio * allocated_bytes
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'too little of the memory can be told apart' AS undecided
WHERE NOT EXISTS (FROM judged)
