/*
title = "Optimizer state appears at the first step: no leak, but a resumed run needs it earlier"
severity = "info"
needs = ["memory_growth", "memory_moments"]
needs_values = ["memory_growth.steps_count"]
summary = "rank {rank}: {what} {jump_bytes}{rest}"
why = """
Adam makes its states inside the first optimizer step, after the activations are gone. A resumed run loads them before its first
forward, so its first peak is higher by just that much, and can fail where the fresh run did not."""
fix = """
Nothing to do in a fresh run. For resuming: load optimizer state to the CPU and move it after the first forward and backward
(torch.load with map_location='cpu'; Megatron-LM and DeepSpeed offload options), or leave that much room: plan with state and
activations together."""
quiet_when = "allocated memory does not jump in the first steps"
collect = "a log of allocated GPU memory per step from the first step on"
sources = ["https://github.com/NVIDIA/Megatron-LM/pull/4638"]
[params]
min_jump_ratio = { default = 0.1, doc = "of what is allocated afterwards; a guess, to be fitted" }
max_jump_count = { default = 3, doc = "steps after the first in which lazy state appears; Adam needs one, a scaler may skip two" }
*/
SELECT
  0 AS lost_ns,
  jump_bytes AS lost_bytes,
  'info' AS severity,
  1.0 AS confidence_ratio,
  rank,
  [rank] AS ranks,
  'allocated memory rises once, by' AS what,
  ' at step ' || jump_step || ', then stays flat: not a leak; a run that resumes holds this before its first forward' AS rest,
  jump_bytes,
  jump_step,
  first_bytes,
  last_bytes,
  peak_bytes
FROM memory_growth
WHERE figure::VARCHAR = 'allocated' AND shape::VARCHAR = 'jump'
  AND jump_bytes > $min_jump_ratio * last_bytes
  AND jump_step - first_step <= $max_jump_count
UNION ALL BY NAME
SELECT
  0 AS lost_ns,
  GREATEST(0, peak_bytes - last_bytes) AS lost_bytes,
  'warning' AS severity,
  0.5 AS confidence_ratio,
  rank,
  [rank] AS ranks,
  'out of memory in the first recorded steps of a run that starts at step ' || first_step || ', with' AS what,
  ' allocated between steps: a resumed run has its optimizer state on the GPU before its first forward, which a fresh one '
  || 'makes only after its first backward' AS rest,
  last_bytes AS jump_bytes,
  first_step AS jump_step,
  first_bytes,
  last_bytes,
  peak_bytes
FROM memory_growth AS g
WHERE figure::VARCHAR = 'allocated' AND first_step > $max_jump_count AND last_step - first_step <= $max_jump_count
  AND peak_bytes > last_bytes
  AND EXISTS (FROM memory_moments AS m WHERE m.moment::VARCHAR = 'oom' AND m.rank IS NOT DISTINCT FROM g.rank)
