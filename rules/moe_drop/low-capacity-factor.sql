/*
title = "The capacity factor is too small even for an even load"
severity = "warning"
needs = ["router_load"]
summary = "experts have room for {room} times an even share, and {drop_ratio} of the assignments are dropped although the busiest expert gets only {busiest} times it; a factor of {needed} would hold nearly all"
why = """
With little room tokens are dropped that no balancing can place: below 1 even a perfect router drops the rest."""
fix = """
Raise it to what the measured load needs: Megatron-LM --moe-expert-capacity-factor, DeepSpeed capacity_factor; or drop nothing:
leave it out (Megatron-LM, torchtitan), drop_tokens=False (DeepSpeed). Padded all-to-alls and expert compute grow in proportion."""
quiet_when = "little is dropped; the load is so uneven that room is not the cause (expert-imbalance); the job is dropless"
collect = "the capacity factor, tokens and top-k beside the counts per expert"
sources = [
  "capacity = factor x tokens x top-k / experts: https://arxiv.org/abs/2006.16668 (section 2.2)",
  "1.25 in training, 2.0 in evaluation: https://arxiv.org/abs/2202.08906 (section 4.4)",
]
[params]
min_drop_ratio = { default = 0.01, doc = "of all assignments; what a balanced router of a published run drops; as for token-drop" }
max_imbalance_ratio = { default = 1.5, doc = "busiest over mean; above, the load is the cause, not the room; a guess, to be fitted" }
critical_drop_ratio = { default = 0.10, doc = "of all assignments, from which it is critical; a guess, to be fitted" }
*/
WITH known AS (
  SELECT *, COALESCE(assigned_count, tokens_count) AS total_count FROM router_load
  WHERE dropped_count IS NOT NULL AND capacity_count IS NOT NULL
),
job AS (
  SELECT
    SUM(dropped_count) / NULLIF(SUM(total_count), 0) AS drop_ratio,
    COALESCE(AVG(imbalance_ratio) FILTER (counted <> 'kept'), AVG(imbalance_ratio)) AS imbalance_ratio,
    QUANTILE_CONT(imbalance_ratio, 0.99) AS needed_ratio,
    AVG(capacity_count * experts_count * records_count / NULLIF(total_count, 0)) AS capacity_ratio,
    SUM(dropped_count)::BIGINT AS dropped_count
  FROM known
)
SELECT
  0 AS lost_ns,
  job.*,
  ROUND(capacity_ratio, 2)::VARCHAR AS room,
  ROUND(imbalance_ratio, 2)::VARCHAR AS busiest,
  ROUND(needed_ratio, 2)::VARCHAR AS needed,
  CASE WHEN drop_ratio > $critical_drop_ratio THEN 'critical' ELSE 'warning' END AS severity
FROM job
WHERE drop_ratio > $min_drop_ratio AND (imbalance_ratio < $max_imbalance_ratio OR capacity_ratio < 1)
