/*
title = "Python's garbage collector stops the step"
severity = "warning"
needs = ["spans", "idle", "profiler_cost"]
needs_values = ["spans.dur_ns"]
summary = "rank {rank}: the GPU idles {lost_ns} of {step_ns} {scope} ({share_ratio}) in {pauses_count} garbage collections"
why = """
A full collection walks every Python object, takes longer as more objects live, and strikes ranks at different times: in a
synchronous job all ranks wait for the one that collects."""
fix = """
Collect at the same step on all ranks: gc.disable() (or gc.freeze() after set-up) and gc.collect(1) every n steps; Megatron-LM
--manual-gc --manual-gc-interval 100, torchtitan training.gc_freq. Without any collection reference cycles that hold tensors
keep GPU memory: watch it, and find what grows if pauses lengthen."""
quiet_when = "collections are short, or run while the device has work; they show only where the recording has them"
collect = "a torch.profiler trace with with_stack=True, or a live hook record, which times collections"
sources = ["planned collection, every 500 steps on all ranks: +12.6 % on a 128-rank job: https://arxiv.org/abs/2505.05713 section 5.4"]
[params]
min_share_ratio = { default = 0.02, doc = "of the step; one rank's pauses add to those of the others; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, ANY_VALUE(scope) AS scope, ANY_VALUE(mean_ns) AS step_ns, COUNT(*) AS spans, SUM(gc_ns) // COUNT(*) AS lost_ns
  FROM spans
  GROUP BY rank
),
worst AS (
  SELECT *, (SELECT MAX(step_ns) FROM job) AS longest_ns
  FROM job
  ORDER BY lost_ns DESC, rank
  LIMIT 1
)
SELECT
  lost_ns,
  longest_ns AS step_ns,
  scope,
  lost_ns / longest_ns AS share_ratio,
  rank,
  [rank] AS ranks,
  (
    SELECT COUNT(*)
    FROM idle AS i SEMI JOIN spans AS s ON s.rank = i.rank AND s.step IS NOT DISTINCT FROM i.step
    WHERE i.cause = 'gc' AND i.rank = worst.rank
  ) AS pauses_count,
  NULL AS undecided
FROM worst
WHERE lost_ns > $min_share_ratio * longest_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'garbage collection shows only in recordings with stacks or in live hook records' AS undecided
WHERE NOT EXISTS (FROM idle WHERE cause = 'gc')
  AND NOT EXISTS (FROM profiler_cost WHERE kind = 'stacks')
