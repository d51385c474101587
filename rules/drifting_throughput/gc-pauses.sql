/*
title = "Python's garbage collector stops the step"
severity = "warning"
needs = ["pauses"]
needs_values = ["pauses.lost_ns"]
summary = "{what}: {lost_ns} of {step_ns} {scope} ({share_ratio})"
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
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  ranks,
  CASE source::VARCHAR
    WHEN 'trace' THEN 'the GPU of rank ' || COALESCE(ARRAY_TO_STRING(ranks, ', '), 'unknown') || ' idles in ' || COALESCE(pauses_count, 0) || ' garbage collections'
    WHEN 'records' THEN COALESCE(pauses_count, 0) || ' pauses of one host at a time (ranks '
      || COALESCE(ARRAY_TO_STRING(ranks, ', '), 'unknown') || COALESCE(', each about every ' || period_count || ' steps', '')
      || ') stop all ranks, as unplanned garbage collection does'
    ELSE 'garbage collections take longer and longer'
  END AS what,
  source,
  pauses_count,
  longest_ns,
  period_count,
  COALESCE(confidence_ratio, 0.5) AS confidence_ratio,
  NULL AS undecided
FROM pauses
WHERE lost_ns > $min_share_ratio * step_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, undecided
FROM pauses
WHERE undecided IS NOT NULL
