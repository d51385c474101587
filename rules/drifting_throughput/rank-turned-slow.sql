/*
title = "One rank turned slow and all others wait for it"
severity = "warning"
needs = ["slowdowns"]
summary = "rank {ranks}: its own work takes {part_grown_ns} longer from step {from_step}, which is {explained_ratio} of what the job's step grew{advice}"
why = """
Ranks of a synchronous job wait for the slowest one: the others' collectives grow, which looks like a slow network. The rank that
causes it shows longer own work and the shortest collectives."""
fix = """
Take the rank's host out and test it: nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE, dcgmi diag -r 3, dmesg for Xid, other processes on
its cores, its disk. Megatron-LM, DeepSpeed, FSDP2 and DDP have no knob for it; NVRx and torch elastic can exclude the host."""
quiet_when = "no rank's own work grew by half of what the step grew, or most ranks' did"
collect = "step records of all ranks over many steps (the live hook's records)"
sources = [
  "https://github.com/NVIDIA/nccl/issues/893",
  "https://github.com/horovod/horovod/issues/2026",
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
  COALESCE(confidence_ratio, 0.5) AS confidence_ratio,
  CASE WHEN ranks IS NULL THEN 'all ranks' ELSE 'rank ' || ARRAY_TO_STRING(ranks, ', ') END AS shown_ranks,
  CASE WHEN collect IS NULL THEN '' ELSE '; why is unknown (uniformly slower: clocks are likely): collect ' || collect END AS advice
FROM slowdowns
WHERE cause::VARCHAR = 'rank'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
