/*
title = "Optimizer state appears at the first step: no leak, but a resumed run needs it earlier"
severity = "info"
needs = ["memory_growth"]
needs_values = ["memory_growth.steps_count"]
summary = "rank {rank}: allocated memory rises once, by {jump_bytes} at step {jump_step}, then stays flat: not a leak; a run that resumes holds this before its first forward"
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
  rank,
  [rank] AS ranks,
  jump_bytes,
  jump_step,
  first_bytes,
  last_bytes,
  peak_bytes
FROM memory_growth
WHERE figure::VARCHAR = 'allocated' AND shape::VARCHAR = 'jump'
  AND jump_bytes > $min_jump_ratio * last_bytes
  AND jump_step - first_step <= $max_jump_count
