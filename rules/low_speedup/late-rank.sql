/*
title = "One rank comes last, and the others wait for it"
severity = "warning"
needs = ["compared_ranks", "expert_balance"]
needs_values = ["compared_ranks.judged_count"]
summary = "rank {rank} {how}: {verb} {lost_ns} {scope} ({share_ratio}) {condition}{because}{missing}"
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
WITH compared AS (
  SELECT *, COALESCE(gain_ns, waits_ns) AS per_step_ns FROM compared_ranks
),
suspect AS (
  SELECT
    *,
    LEAST(waits_ns, per_step_ns) > $min_share_ratio * step_ns AND blamed_ratio > $min_blamed_ratio
    AND NOT EXISTS (  -- it is late because its experts get more tokens: expert-imbalance says so
      FROM expert_balance AS e
      WHERE e.source = 'trace' AND e.busiest_rank = compared.rank AND e.ep_imbalance_ratio > 1.1
        AND 2 * (e.busiest_expert_ns - e.expert_ns) >= compared.per_step_ns
    ) AS late
  FROM compared
)
SELECT
  rank,
  per_step_ns AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  step_ns,
  waits_ns,
  per_step_ns / step_ns AS share_ratio,
  scope,
  last_count,
  judged_count,
  blamed_ratio,
  caused_wait_ns,
  cause,
  cause_ns,
  stage,
  slowdown_ratio,
  m_w_ratio,
  m_s_ratio,
  CASE WHEN evidence = 'pipeline' THEN 'of stage ' || stage || ' is slower than the other copies of its stage'
       ELSE 'comes last in ' || last_count || ' of ' || judged_count || ' shared calls' END AS how,
  CASE WHEN gain_ns IS NULL THEN 'the others wait' ELSE 'the job would win' END AS verb,
  CASE WHEN gain_ns IS NULL THEN 'for it alone' ELSE 'if it were like the others' END AS condition,
  CASE cause
    WHEN 'compute' THEN '; it computes' || COALESCE(' ' || duration(cause_ns), '') || ' longer than the median rank'
    WHEN 'input' THEN '; it waits ' || duration(cause_ns) || ' longer for its data loader'
    WHEN 'gc' THEN '; it collects garbage for ' || duration(cause_ns) || ' more'
    WHEN 'copy' THEN '; it copies ' || duration(cause_ns) || ' longer'
    WHEN 'host' THEN '; it idles' || COALESCE(' ' || duration(cause_ns), '') || ' longer'
    WHEN 'begin' THEN '; it began late: the cause lies before the recording'
    ELSE '' END AS because,
  CASE WHEN incomplete_count > 0 THEN '; ranks of its groups are missing and may be later still' ELSE '' END AS missing,
  CASE WHEN per_step_ns > $critical_share_ratio * step_ns THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN incomplete_count > 0 THEN 0.6 ELSE 1.0 END AS confidence_ratio,
  ranks,
  CASE WHEN late IS NOT TRUE THEN 'ranks of the groups are missing, and the ranks seen may be waiting for one of them' END AS undecided
FROM suspect
WHERE late OR (incomplete_count > 0 AND untold_ns > $min_share_ratio * step_ns)
