/*
title = "GPU clocks fell and the step grew with them"
severity = "critical"
needs = ["slowdowns"]
summary = "{shown_ranks}: SM clock from {early_mhz} to {late_mhz}{reason}; {what} {part_grown_ns} longer from step {from_step}, {explained_ratio} of what the job's step grew"
why = """
A GPU that is too hot or over its power limit lowers its clocks, and everything on it becomes slower in proportion. One such GPU slows
the whole job, because all others wait for it."""
fix = """
nvidia-smi -q -d PERFORMANCE names the reason: SW/HW thermal slowdown (airflow, paste, fan, neighbours), HW power brake (supply), SW power cap
(nvidia-smi -pl). Take the host out until repaired. Same for DDP, FSDP2, DeepSpeed and Megatron-LM."""
quiet_when = "clocks kept within 2 %, or the step did not grow"
collect = "step records or a training log with times, and samples of all GPUs over the run (nvidia-smi --query-gpu=timestamp,index,clocks.sm,temperature.gpu,clocks_throttle_reasons.active --format=csv -l 5)"
sources = [
  "https://github.com/NVIDIA/nccl/issues/893",
  "https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
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
  COALESCE(devices, 'rank ' || ARRAY_TO_STRING(ranks, ', '), 'all ranks') AS shown_ranks,
  devices,
  CASE WHEN note IS NULL THEN '' ELSE ' (' || note || ')' END AS reason,
  CASE WHEN part IS NULL THEN 'such a clock makes the step about' ELSE 'compute takes' END AS what,
  sign_early AS early_mhz,
  sign_late AS late_mhz
FROM slowdowns
WHERE cause::VARCHAR = 'clocks'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
