/*
title = "Live memory grows step by step"
severity = "warning"
needs = ["memory_growth"]
needs_values = ["memory_growth.slope_bytes"]
summary = "{whose}{what} grows by {slope_bytes} a step over {steps_count} steps ({first_bytes} to {last_bytes}){place}{left}"
why = """
Tensors stay alive from step to step: a loss that still carries its graph is added up or logged, outputs are kept in a list, hooks
or caches hold references; on the host also queues, workers and logs. It is not fragmentation: what is reserved only follows what is allocated."""
fix = """
Keep numbers, not tensors: total_loss += loss.detach() or loss.item(), detach what is logged or appended (also in
Megatron-LM and Lightning hooks), clear per-step lists, and look for growing caches (torch.compile recompiles, KV caches). A
snapshot (torch.cuda.memory._record_memory_history()) over several steps names the line that makes what is never freed."""
quiet_when = "the floor of allocated memory is flat, jumps once (lazy optimizer state), or returns (a saw-tooth)"
collect = "a log of allocated GPU memory, or of the process's resident memory, per step over many steps"
sources = [
  "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
  "https://discuss.pytorch.org/t/gpu-memory-increase-while-i-wanna-to-backward-with-accumulative-loss/43284",
]
[params]
min_grown_ratio = { default = 0.02, doc = "of what is allocated at the end, over the recording; a guess, to be fitted" }
max_apart_ratio = { default = 0.25, doc = "by which a place's allocations may differ from the growth per step to be its cause; a guess" }
*/
WITH grows AS (
  SELECT * FROM memory_growth
  WHERE figure::VARCHAR IN ('allocated', 'host') AND shape::VARCHAR = 'growing' AND grown_bytes > $min_grown_ratio * last_bytes
),
causes AS (
  SELECT g.rank, g.figure, ARG_MAX(p.place, p.grown_bytes) AS line, ARG_MAX(p.steps_count, p.grown_bytes) AS kept
  FROM grows AS g JOIN memory_growth AS p
    ON g.figure::VARCHAR = 'allocated' AND p.figure::VARCHAR = 'place' AND (p.rank IS NOT DISTINCT FROM g.rank OR p.rank < 0 OR g.rank IS NULL)
    AND ABS(p.slope_bytes - g.slope_bytes) <= $max_apart_ratio * g.slope_bytes
  GROUP BY g.rank, g.figure
)
SELECT
  0 AS lost_ns,
  g.grown_bytes AS lost_bytes,
  g.rank,
  CASE WHEN g.rank IS NOT NULL THEN [g.rank] END AS ranks,
  CASE WHEN g.rank IS NULL THEN '' ELSE 'rank ' || g.rank || ': ' END AS whose,
  g.figure,
  CASE g.figure::VARCHAR WHEN 'host' THEN 'resident memory of the process' ELSE 'allocated memory' END AS what,
  g.slope_bytes,
  g.steps_count,
  g.first_step,
  g.last_step,
  g.first_bytes,
  g.last_bytes,
  g.rising_ratio,
  c.line AS source_line,
  g.left_count,
  CASE WHEN c.line IS NULL THEN ''
       ELSE '; ' || c.kept || ' allocations of that size made at ' || c.line || ' are never freed' END AS place,
  CASE WHEN g.left_count IS NULL THEN '' ELSE '; the device is full in about ' || g.left_count || ' steps' END AS left
FROM grows AS g LEFT JOIN causes AS c ON c.rank IS NOT DISTINCT FROM g.rank AND c.figure = g.figure
