/*
title = "Experts get no tokens"
severity = "warning"
needs = ["experts", "moe_setup"]
summary = "{dead_count} of {experts_count} experts ({dead_ratio}) get less than {limit} of an even share of their layer's tokens{where_}"
why = """
An expert that is not chosen is not trained, and is chosen even less: its parameters, optimizer states and its place in memory are spent for nothing,
and the model is smaller than it looks."""
fix = """
An auxiliary loss that reaches idle experts (Megatron-LM --moe-aux-loss-coeff 1e-2; DeepSpeed l_aux) or bias updates (Megatron-LM
--moe-router-enable-expert-bias, torchtitan load_balance_coeff); noise or jitter early in training (--moe-input-jitter-eps); a z-loss
(--moe-z-loss-coeff 1e-3) and a float32 router (--moe-router-dtype fp32). After a collapse: return to a checkpoint from before."""
quiet_when = "every expert gets some tokens, or too few tokens were recorded to expect any; the router is forced to balance"
collect = "counts of tokens per expert for every layer, over many steps"
sources = [
  "https://arxiv.org/abs/2101.03961",
  "https://arxiv.org/abs/2202.08906",
]
[params]
max_load_ratio = { default = 0.01, doc = "of an even share in the last third of the steps; below, an expert is dead; a choice" }
min_expected_count = { default = 100, doc = "assignments of an even share in these steps, without which a missing expert tells nothing" }
critical_dead_ratio = { default = 0.25, doc = "of all experts, from which it is critical; a guess, to be fitted" }
*/
WITH judged AS (
  SELECT * FROM experts WHERE late_expected_count > $min_expected_count AND NOT EXISTS (FROM moe_setup WHERE forced)
),
dead AS (
  SELECT * FROM judged WHERE late_load_ratio < $max_load_ratio
),
layers AS (
  SELECT layer, COUNT(*) AS dead_count FROM dead GROUP BY layer
),
worst AS (
  SELECT * FROM layers ORDER BY dead_count DESC, layer LIMIT 1
),
job AS (
  SELECT (SELECT COUNT(*) FROM dead) AS dead_count, COUNT(*) AS experts_count, COUNT(DISTINCT layer) AS layers_count FROM judged
)
SELECT
  0 AS lost_ns,
  job.dead_count,
  job.experts_count,
  job.dead_count / job.experts_count AS dead_ratio,
  ROUND(100 * $max_load_ratio, 2) || ' %' AS "limit",
  worst.layer AS worst_layer,
  (SELECT LIST(expert ORDER BY expert) FROM (SELECT DISTINCT expert FROM dead WHERE layer IS NOT DISTINCT FROM worst.layer)) AS dead_experts,
  CASE WHEN worst.layer IS NULL OR job.layers_count = 1 THEN ''
       ELSE ', most in layer ' || worst.layer || ' (' || worst.dead_count || ')' END AS where_,
  CASE WHEN job.dead_count >= $critical_dead_ratio * job.experts_count THEN 'critical' ELSE 'warning' END AS severity
FROM job, worst
WHERE job.dead_count > 0
