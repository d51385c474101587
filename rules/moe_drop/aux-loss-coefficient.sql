/*
title = "The coefficient of the balancing loss does not suit"
severity = "warning"
needs = ["moe_setup", "expert_balance"]
summary = "{what}"
why = """
The auxiliary loss is the only force towards an even load where no biases are adjusted. At zero it is not there, whatever kind is named; too large,
it outweighs the language loss and makes the router blind to its input."""
fix = """
Megatron-LM --moe-aux-loss-coeff (its default is 0.0): 1e-2 is the published start, 1e-3 to 1e-4 beside biases
(--moe-router-enable-expert-bias); torchtitan load_balance_coeff (1e-3, a bias rate); DeepSpeed: the weight you give l_aux. Watch the load and the
loss for a few hundred steps after a change."""
quiet_when = "the load is near even and the coefficient not large; biases balance instead; the router is forced; no coefficient is known"
collect = "the printed arguments of the job (moe_aux_loss_coeff, moe_router_load_balancing_type), and counts per expert"
sources = [
  "1e-2 balances without hurting the loss, over four orders of magnitude: https://arxiv.org/abs/2101.03961 (section 2.2)",
  "1e-4 beside biases: https://arxiv.org/abs/2412.19437 (section 4.2)",
]
[params]
min_imbalance_ratio = { default = 1.5, doc = "busiest expert over mean, from which balancing does not do its work; a guess, to be fitted" }
max_weak_ratio = { default = 1e-4, doc = "below, a balancing loss alone is too weak where the load is uneven; two orders below the published value" }
min_strong_ratio = { default = 0.1, doc = "above, it competes with the language loss; ten times the published value; a guess" }
*/
WITH load AS (
  SELECT MAX(imbalance_ratio - (COALESCE(chance_imbalance_ratio, 1) - 1)) AS imbalance_ratio FROM expert_balance WHERE source = 'records'
),
job AS (
  SELECT s.*, load.imbalance_ratio
  FROM moe_setup AS s, load
  WHERE s.aux_loss_coeff IS NOT NULL AND s.forced IS DISTINCT FROM TRUE
    AND (s.balancing IS NULL OR s.balancing::VARCHAR ILIKE '%loss%')
)
SELECT
  0 AS lost_ns,
  aux_loss_coeff,
  balancing::VARCHAR AS balancing,
  imbalance_ratio,
  CASE
    WHEN aux_loss_coeff > $min_strong_ratio THEN 'the balancing loss has a coefficient of ' || aux_loss_coeff || ', ten times what is published and more'
    WHEN aux_loss_coeff = 0 THEN COALESCE(balancing::VARCHAR, 'a balancing loss') || ' is chosen, but its coefficient is 0: nothing balances, and the busiest expert gets '
      || ROUND(imbalance_ratio, 2) || ' times an even share'
    ELSE 'the balancing loss has a coefficient of ' || aux_loss_coeff || ', and the busiest expert gets ' || ROUND(imbalance_ratio, 2) || ' times an even share'
  END AS what
FROM job
WHERE aux_loss_coeff > $min_strong_ratio
  OR (aux_loss_coeff < $max_weak_ratio AND expert_bias IS DISTINCT FROM TRUE AND imbalance_ratio > $min_imbalance_ratio)
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'the coefficient of the balancing loss is small, and the load of the experts is not recorded' AS undecided
FROM job
WHERE aux_loss_coeff < $max_weak_ratio AND expert_bias IS DISTINCT FROM TRUE AND imbalance_ratio IS NULL
