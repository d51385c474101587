/*
title = "The router collapses onto few experts"
severity = "critical"
needs = ["slowdowns"]
summary = "router entropy falls from {sign_early} to {sign_late} as the step grows by {grown_ns} from step {from_step}"
why = """
The router sends nearly all tokens to few experts: their ranks work, the others wait, and the model loses the capacity of the idle experts.
It seldom recovers by itself."""
fix = """
Return to a checkpoint from before that step; raise the auxiliary loss (Megatron-LM --moe-aux-loss-coeff), add --moe-z-loss-coeff 1e-3, keep
the router in float32 (--moe-router-dtype fp32), lower its learning rate; DeepSpeed and torchtitan have the same coefficients."""
quiet_when = "the entropy keeps within 15 %, or the step did not grow"
collect = "step records of all ranks over many steps (the live hook's records)"
sources = [
  "https://arxiv.org/abs/2101.03961",
  "https://arxiv.org/abs/2202.08906",
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
WHERE cause::VARCHAR = 'router_collapse'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
