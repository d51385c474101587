/*
title = "Experts become unevenly loaded and the step grows with it"
severity = "warning"
needs = ["slowdowns"]
summary = "expert load (largest over mean) goes from {sign_early} to {sign_late}; waiting in collectives takes {part_grown_ns} longer from step {from_step}, {explained_ratio} of what the job's step grew"
why = """
The rank with the most loaded experts is late in every layer, another one each step, so no rank looks slow: all wait more. It grows
while the router learns to prefer some experts."""
fix = """
Strengthen balancing: Megatron-LM --moe-aux-loss-coeff 1e-2, --moe-router-load-balancing-type aux_loss or --moe-router-enable-expert-bias;
torchtitan load_balance_coeff; DeepSpeed l_aux weight. --moe-z-loss-coeff 1e-3 keeps logits small. A capacity factor bounds the loss of
time at the price of dropped tokens."""
quiet_when = "the imbalance is level, or the step did not grow"
collect = "step records of all ranks over many steps (the live hook's records)"
sources = [
  "https://github.com/verl-project/verl/issues/4103",
  "https://github.com/NVIDIA/Megatron-LM/issues/2398",
]
[params]
min_grown_ratio = { default = 0.01, doc = "growth of the part over the step before it; as for the job's step; a choice" }
min_explained_ratio = { default = 0.25, doc = "of the step's growth that the part must explain; below, it is no main cause; a guess" }
*/
SELECT
  COALESCE(lost_ns, 0) AS lost_ns,
  ranks,
  part,
  part_grown_ns,
  usual_ns,
  grown_ns,
  explained_ratio,
  from_step,
  until_step,
  shape,
  slope_ns,
  sign,
  sign_early,
  sign_late,
  collect,
  COALESCE(confidence_ratio, 0.5) AS confidence_ratio
FROM slowdowns
WHERE cause::VARCHAR = 'imbalance'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
