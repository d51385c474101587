/*
title = "Every so many steps the job stands still"
severity = "warning"
needs = ["stalls", "trends"]
needs_values = ["trends.early"]
summary = "every {period_count} steps one takes {excess_ns} longer{what}: {stalls_count} times, {total_ns} in all, {share_ratio} of the run; the steps between take {usual_ns}"
why = """
Something that keeps a rhythm stops all ranks: a checkpoint written in the foreground, an evaluation, a profiler, logging that
synchronises. The median step does not show it, the mean does. It is no drift."""
fix = """
Write checkpoints in the background: Megatron-LM --async-save with torch_dist, torchtitan checkpoint.async_mode=\"async\", DeepSpeed
checkpoint engines (async), FSDP2 with torch.distributed.checkpoint.async_save; shard them over ranks, stage to local disk first. Evaluate and
log less often, and without .item() on the way."""
quiet_when = "stalls keep no rhythm, or take less than 2 % of the run"
collect = "step records over at least three of the stalls"
sources = ["https://github.com/pytorch/torchtitan/issues/1301", "https://github.com/NVIDIA/Megatron-LM/issues/651"]
[params]
min_share_ratio = { default = 0.02, doc = "of all the run's time; below, a checkpoint is worth its price; a guess" }
min_stalls_count = { default = 2, doc = "two of a kind keep no rhythm yet" }
*/
WITH kinds AS (
  SELECT
    period_count,
    part,
    COUNT(*) AS stalls_count,
    SUM(excess_ns)::BIGINT AS total_ns,
    MEDIAN(excess_ns)::BIGINT AS excess_ns,
    MEDIAN(usual_ns)::BIGINT AS usual_ns,
    MAX(run_count) AS steps_count,
    LIST(step ORDER BY step) AS steps
  FROM stalls
  WHERE kind::VARCHAR = 'periodic' AND COALESCE(part::VARCHAR, '') NOT IN ('gc', 'host_gap')
  GROUP BY period_count, part
)
SELECT
  total_ns // steps_count AS lost_ns,
  period_count,
  excess_ns,
  total_ns,
  usual_ns,
  stalls_count,
  total_ns / (total_ns + steps_count * usual_ns) AS share_ratio,
  CASE WHEN part IS NULL THEN ' (a checkpoint or an evaluation, most likely)' ELSE ' in ' || part END AS what,
  part,
  steps,
  CASE WHEN part IS NULL THEN 0.8 ELSE 0.95 END AS confidence_ratio
FROM kinds
WHERE stalls_count > $min_stalls_count AND total_ns / (total_ns + steps_count * usual_ns) > $min_share_ratio
