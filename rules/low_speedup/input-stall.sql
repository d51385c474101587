/*
title = "The step waits for input data"
severity = "warning"
needs = ["spans", "idle", "kernels", "rank_what_if"]
needs_values = ["spans.dur_ns"]
decides = true
summary = "rank {rank}: the GPU idles {idle_ns} of {step_ns} {scope} ({share_ratio}) while the host is in {host}{job_gain}"
why = """
The next batch is not ready when the step wants it. In a data-parallel job every rank then waits for the slowest loader,
so the loss grows with the number of ranks."""
fix = """
DataLoader(num_workers=4..16, pin_memory=True, persistent_workers=True, prefetch_factor=2 or more) and
batch.to(device, non_blocking=True) one step ahead: num_workers=0 loads inside the step. Then make the work itself cheaper:
tokenise and decode ahead of time, larger files read in order, local disk instead of a shared file system, augmentation on
the GPU. Megatron-LM: --num-workers and a pre-built, cached index; DeepSpeed: dataloader_num_workers of the caller;
torchtitan: dataloader workers in the training config. More workers cost host memory, and forked workers inherit the parent's:
watch it grow."""
quiet_when = "the loader keeps ahead of the device: its time is hidden then, however long it takes"
collect = "a trace with both CPU and CUDA activities"
sources = [
  "https://docs.pytorch.org/docs/stable/data.html (workers, pinned memory)",
  "loader stall of 63 to 74 ms per step with num_workers=0, none with 4: sample traces of https://github.com/pytorch/kineto (tb_plugin/samples)",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step; a guess, to be fitted" }
critical_share_ratio = { default = 0.30, doc = "of the step, from which it is critical; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, ANY_VALUE(scope) AS scope, ANY_VALUE(mean_ns) AS step_ns, COUNT(*) AS spans, SUM(input_ns) // COUNT(*) AS waits_ns,
    COUNT(*) FILTER (input_ns > 0) AS stalled
  FROM spans
  GROUP BY rank
),
worst AS (
  SELECT *, (SELECT MAX(step_ns) FROM job) AS longest_ns
  FROM job
  ORDER BY waits_ns DESC, rank
  LIMIT 1
),
gain AS (  -- what the job gains without this idle time on any rank; null where that was not replayed
  SELECT ANY_VALUE(gain_ns) AS gain_ns FROM rank_what_if WHERE fixed = 'part' AND part = 'input'
),
blamed AS (
  SELECT i.host
  FROM idle AS i SEMI JOIN spans AS s ON s.rank = i.rank AND s.step IS NOT DISTINCT FROM i.step
  WHERE i.cause = 'input' AND i.rank = (SELECT rank FROM worst)
  GROUP BY i.host
  ORDER BY SUM(i.dur_ns) DESC
  LIMIT 1
)
SELECT
  GREATEST(LEAST(COALESCE(gain_ns, waits_ns), longest_ns), 0) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  waits_ns AS idle_ns,
  longest_ns AS step_ns,
  scope,
  waits_ns / longest_ns AS share_ratio,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || duration(gain_ns) || ' if no rank has it' ELSE '' END AS job_gain,
  rank,
  [rank] AS ranks,
  COALESCE((SELECT host FROM blamed), 'the data loader') AS host,
  stalled AS stalled_steps_count,
  spans AS steps_count,
  CASE WHEN COALESCE(gain_ns, waits_ns) > $critical_share_ratio * longest_ns THEN 'critical' ELSE 'warning' END AS severity,
  NULL AS undecided
FROM worst, gain
WHERE LEAST(waits_ns, COALESCE(gain_ns, waits_ns)) > $min_share_ratio * longest_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'no host call is recorded, so the data loader is not seen' AS undecided
WHERE EXISTS (FROM kernels WHERE device IS NOT NULL)
  AND NOT EXISTS (FROM kernels WHERE launch_ns IS NOT NULL)
  AND NOT EXISTS (FROM idle WHERE cause = 'input')
