/*
title = "Tokens are dropped for lack of room in their experts"
severity = "warning"
needs = ["router_load", "moe_setup"]
decides = true
summary = "{drop_ratio} of the assignments ({dropped_count} of {total_count}) are dropped{worst}; {room}"
why = """
A token that its expert has no room for skips the expert: the layer passes it on unchanged. The model trains on less than it is given, and
evaluation without a capacity sees another model. Logs of counts after the cut show no drop at all."""
fix = """
Balance first (expert-imbalance, aux-loss-coefficient): drops follow the load. Then more room: Megatron-LM --moe-expert-capacity-factor 1.25
and more (padded all-to-alls grow with it), or none at all, which is dropless (Megatron-LM's default; torchtitan knows nothing else; DeepSpeed
drop_tokens=False). --moe-token-drop-policy probs drops the least wanted assignments, position the last of the batch."""
quiet_when = "fewer are dropped than the threshold; the job is dropless: it has nothing to drop, whatever its load"
collect = "router statistics per layer and expert (tokens_per_expert, tokens, top-k and capacity factor of every step: diagnose.live.moe.observe, or JSON lines of your own)"
sources = [
  "a log of counts after the cut reads 0 dropped: https://github.com/deepseek-ai/DeepSeek-MoE/issues/29",
  "under 1 % of tokens are dropped with a capacity factor of 1.25 and an auxiliary loss: https://arxiv.org/abs/2101.03961 (section 2.2)",
]
[params]
min_drop_ratio = { default = 0.01, doc = "of all assignments; what a balanced router of a published run drops (sources)" }
critical_drop_ratio = { default = 0.10, doc = "of all assignments, from which it is critical; a guess, to be fitted" }
*/
WITH known AS (
  SELECT *, COALESCE(assigned_count, tokens_count) AS total_count FROM router_load WHERE dropped_count IS NOT NULL
),
layers AS (
  SELECT layer, SUM(dropped_count) / NULLIF(SUM(total_count), 0) AS drop_ratio FROM known GROUP BY layer
),
worst AS (
  SELECT * FROM layers ORDER BY drop_ratio DESC, layer LIMIT 1
),
job AS (
  SELECT
    SUM(dropped_count)::BIGINT AS dropped_count,
    SUM(total_count)::BIGINT AS total_count,
    SUM(dropped_count) / NULLIF(SUM(total_count), 0) AS drop_ratio,
    COALESCE(AVG(imbalance_ratio) FILTER (counted <> 'kept'), AVG(imbalance_ratio)) AS imbalance_ratio,
    AVG(capacity_count * experts_count * records_count / NULLIF(total_count, 0)) AS capacity_ratio,
    MIN(capacity_count) AS capacity_count,
    COUNT(DISTINCT step) AS steps_count
  FROM known
)
SELECT
  0 AS lost_ns,
  job.*,
  worst.layer AS worst_layer,
  worst.drop_ratio AS worst_drop_ratio,
  COALESCE('experts have room for ' || ROUND(job.capacity_ratio, 2) || ' times an even share, ', '') || 'the busiest gets '
    || ROUND(job.imbalance_ratio, 2) || ' times it' AS room,
  CASE WHEN worst.layer IS NULL OR (SELECT COUNT(*) FROM layers) = 1 THEN ''
       ELSE ', most in layer ' || worst.layer || ' (' || ROUND(100 * worst.drop_ratio, 1) || ' %)' END AS worst,
  CASE WHEN job.drop_ratio > $critical_drop_ratio THEN 'critical' ELSE 'warning' END AS severity
FROM job, worst
WHERE job.drop_ratio > $min_drop_ratio
UNION ALL BY NAME
SELECT 0 AS lost_ns, CASE
    WHEN NOT EXISTS (FROM router_load)
      THEN COALESCE((SELECT 'the job has experts (' || evidence || '), but what its routers do was not recorded' FROM moe_setup),
                    'no router was recorded')
    ELSE 'router records do not tell how many assignments are dropped'
  END AS undecided
WHERE NOT EXISTS (FROM known)
  AND NOT (EXISTS (FROM moe_setup WHERE dropless) AND NOT EXISTS (FROM router_load))
  AND (NOT EXISTS (FROM router_load) OR EXISTS (FROM router_load WHERE dropless IS DISTINCT FROM TRUE))
