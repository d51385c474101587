/*
title = "Collectives lost bandwidth and the step grew with it"
severity = "warning"
needs = ["slowdowns"]
summary = "bus bandwidth goes from {sign_early} to {sign_late} GB/s from step {from_step}; collectives take {part_grown_ns} longer on every rank alike, {explained_ratio} of what the job's step grew"
why = """
No rank's own work grew and all wait alike: the transfer itself is slower. A link negotiated down, a port with errors, a congested or
rerouted path, or another job on the same switches."""
fix = """
Find the link: nccl-tests between pairs of hosts, ibstat and mlxlink (speed, width, error counters), nvidia-smi nvlink -e, the switch's counters;
NCCL_DEBUG=INFO of before and now (transport, channels). DDP, FSDP2, DeepSpeed and Megatron-LM need no change."""
quiet_when = "bus bandwidth is level, or a rank's own work explains the growth"
collect = "step records of all ranks over many steps (the live hook's records)"
sources = [
  "https://github.com/NVIDIA/nccl/issues/905",
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
WHERE cause::VARCHAR = 'link'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
