/*
title = "Activations hold most of the memory"
severity = "warning"
needs = ["memory_parts", "memory_moments"]
needs_values = ["memory_parts.bytes"]
summary = "rank {rank}, device {device}, at {moment}: {held_bytes} of {allocated_bytes} allocated ({share_ratio}) are activations{place}; model state (parameters, gradients, optimizer) holds at most {most_state_bytes}, so sharding it further (ZeRO) would not help"
why = """
What forward keeps for backward grows with micro-batch, sequence and layers, not with the parameters. Sharding the model state
leaves it as it is."""
fix = """
Recompute (torch.utils.checkpoint; torchtitan activation_checkpoint.mode, Megatron-LM --recompute-granularity selective, then
full; 4 to 40 % more compute), a smaller micro-batch with more accumulation steps, sequence parallel with tensor parallel
(Megatron-LM --sequence-parallel), or context parallel for long sequences. Fused attention stores no score matrix."""
quiet_when = "other parts hold as much, or too little of the memory can be told apart"
collect = "a CUDA memory snapshot with stacks, taken at the failure or over a whole step"
sources = ["https://arxiv.org/abs/2205.05198"]
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
  activations_bytes AS lost_bytes,
  CASE WHEN f.is_full THEN 'warning' ELSE 'info' END AS severity,
  COALESCE(sure, 0.5) AS confidence_ratio,
  j.rank,
  [j.rank] AS ranks,
  j.device,
  j.moment,
  activations_bytes AS held_bytes,
  allocated_bytes,
  activations_bytes / allocated_bytes AS share_ratio,
  activations_bytes,
  state_bytes,
  most_state_bytes,
  parameters_bytes,
  gradients_bytes,
  optimizer_bytes,
  CASE WHEN top_place IS NULL THEN '' ELSE ', most of them made at ' || top_place END AS place,
  NULL AS undecided
FROM judged AS j LEFT JOIN tight AS f
  ON f.rank IS NOT DISTINCT FROM j.rank AND f.device IS NOT DISTINCT FROM j.device AND f.moment = j.moment
  AND f.failure IS NOT DISTINCT FROM j.failure
WHERE activations_bytes > most_state_bytes AND activations_bytes > $min_share_ratio * allocated_bytes AND loss_bytes <= activations_bytes / 2
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'too little of the memory can be told apart' AS undecided
WHERE NOT EXISTS (FROM judged)
