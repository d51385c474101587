/*
title = "One rank comes last, and the others wait for it"
severity = "warning"
needs = ["late_ranks", "spans", "clocks"]
needs_values = ["clocks.offset_ns", "late_ranks.judged_count"]
summary = "rank {rank} comes last in {last_count} of {judged_count} shared calls: the others wait {lost_ns} {scope} ({share_ratio}) for it alone{cause}{missing}"
why = """
A collective starts to move data when the last rank arrives. The late rank has the short communication kernel; the long
ones, on all other ranks, are waiting. Neither the network nor the ranks that wait are at fault."""
fix = """
Look at what this rank does before it arrives, not at its communication. More compute than the others: uneven layers or
sequences, a slow GPU (compare clocks and temperature: nvidia-smi -q -d CLOCK,PERFORMANCE; swap the node to tell hardware
from work). More idle: its DataLoader (num_workers, a slow disk), its host (NUMA binding, other processes), logging or checkpointing that only this
rank does."""
quiet_when = """
the blame is spread over ranks (moving-straggler); lateness is hidden under compute or below the clock error; ranks share
no collective or only one rank was recorded"""
collect = "traces of all ranks over the same steps"
sources = [
  "maintainers on long collectives behind a slow rank: https://github.com/NVIDIA/nccl/issues/893",
  "stragglers cost 10 % and more of the time in a fifth of the jobs of a large cluster: https://arxiv.org/abs/2505.05713",
]
[params]
min_share_ratio = { default = 0.03, doc = "of the step; below, nobody acts; a guess, to be fitted" }
critical_share_ratio = { default = 0.20, doc = "of the step, from which it is critical; a guess, to be fitted" }
min_blamed_ratio = { default = 0.5, doc = "of all blame: most of it is this rank's; definition of 'one rank'" }
*/
WITH job AS (
  SELECT
    rank,
    ANY_VALUE(scope) AS scope,
    ANY_VALUE(mean_ns) AS step_ns,
    COUNT(*) AS spans,
    SUM(compute_ns) // COUNT(*) AS compute_ns,
    SUM(input_ns) // COUNT(*) AS input_ns,
    SUM(gc_ns + alloc_ns + sync_ns + launch_ns + idle_ns + copy_ns) // COUNT(*) AS host_ns
  FROM spans
  GROUP BY rank
),
others AS (
  SELECT l.rank, MEDIAN(o.compute_ns) AS compute_ns, MEDIAN(o.input_ns) AS input_ns, MEDIAN(o.host_ns) AS host_ns
  FROM late_ranks AS l, job AS o
  WHERE o.rank <> l.rank
  GROUP BY l.rank
),
suspect AS (
  SELECT
    l.*,
    job.scope,
    LEAST(l.lost_ns // job.spans, (SELECT MAX(step_ns) FROM job)) AS per_step_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    job.compute_ns - o.compute_ns AS more_compute_ns,
    job.input_ns - o.input_ns AS more_input_ns,
    job.host_ns - o.host_ns AS more_host_ns
  FROM late_ranks AS l JOIN job USING (rank) LEFT JOIN others AS o USING (rank)
)
SELECT
  rank,
  per_step_ns AS lost_ns,
  step_ns,
  per_step_ns / step_ns AS share_ratio,
  scope,
  last_count,
  judged_count,
  blamed_ratio,
  caused_wait_ns,
  CASE
    WHEN GREATEST(more_compute_ns, more_input_ns, more_host_ns) * 2 < per_step_ns THEN ''
    WHEN more_compute_ns >= GREATEST(more_input_ns, more_host_ns) THEN '; it computes ' || ROUND(more_compute_ns / 1e6, 2) || ' ms longer than the median rank'
    WHEN more_input_ns >= more_host_ns THEN '; it waits ' || ROUND(more_input_ns / 1e6, 2) || ' ms longer for its data loader'
    ELSE '; it idles ' || ROUND(more_host_ns / 1e6, 2) || ' ms longer'
  END AS cause,
  CASE WHEN incomplete_count > 0 THEN '; ranks of its groups are missing and may be later still' ELSE '' END AS missing,
  CASE WHEN per_step_ns > $critical_share_ratio * step_ns THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN incomplete_count > 0 THEN 0.6 ELSE 1.0 END AS confidence_ratio,
  [rank] AS ranks
FROM suspect
WHERE per_step_ns > $min_share_ratio * step_ns
  AND blamed_ratio > $min_blamed_ratio
