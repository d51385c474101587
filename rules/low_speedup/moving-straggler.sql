/*
title = "Another rank is late every time"
severity = "warning"
needs = ["late_ranks", "arrivals", "spans", "clocks", "rank_what_if", "expert_balance"]
needs_values = ["clocks.offset_ns", "late_ranks.judged_count"]
summary = "{waits_ns} {scope} ({share_ratio}) goes to waiting for whichever rank is last: {ranks_count} ranks take turns, rank {rank} has the largest share of it ({blamed_ratio}){job_gain}{because}"
why = """
When another rank is late every time, each step lasts as long as its slowest rank: the mean of a maximum. No rank is
broken; the work differs from step to step, or hosts stall at random."""
fix = """
Give ranks equal work: pack or bucket sequences by length and balance tokens, not samples, per rank; balance experts.
Random host stalls: pin processes to NUMA nodes, freeze and time garbage collection (gc.freeze, gc.collect every n
steps on all ranks together), move logging and checkpoints off the critical path. Less frequent synchronisation
(DDP no_sync, FSDP2 set_requires_gradient_sync(False) under gradient accumulation) averages the differences out."""
quiet_when = "one rank has most of the blame (late-rank), too few calls to tell, lateness hidden or below the clock error"
collect = "traces of all ranks over several steps"
sources = [
  "sequence-length imbalance behind many stragglers, ranks take turns: https://arxiv.org/abs/2505.05713",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step; a guess, to be fitted" }
min_blamed_ratio = { default = 0.5, doc = "of all blame, from which one rank is the cause and late-rank speaks; definition" }
min_judged_count = { default = 8, doc = "calls in which the clocks tell the last rank; of fewer, turns are no pattern; a guess" }
*/
WITH job AS (
  SELECT rank, ANY_VALUE(scope) AS scope, ANY_VALUE(mean_ns) AS step_ns, COUNT(*) AS spans FROM spans GROUP BY rank
),
waits AS (  -- groups of one dimension wait side by side: the worst of them is what the job waits
  SELECT SUM(lost_ns) // (SELECT MAX(spans) FROM job) AS per_step_ns FROM (
    SELECT MAX(lost_ns) AS lost_ns FROM (
      SELECT a.step, a.dim, a."group", SUM(a.exposed_late_ns) AS lost_ns
      FROM arrivals AS a SEMI JOIN spans AS s ON s.step IS NOT DISTINCT FROM a.step
      WHERE a.last_rank IS NOT NULL AND NOT a.inherited
      GROUP BY ALL
    ) GROUP BY step, dim
  )
),
gain AS (  -- what the job gains if all ranks take the mean, and the part of their time that matters most
  SELECT
    ANY_VALUE(gain_ns) FILTER (fixed = 'balance') AS gain_ns,
    MAX(gain_ns) FILTER (fixed = 'balance_part') AS part_ns,
    ARG_MAX(part, gain_ns) FILTER (fixed = 'balance_part') AS part
  FROM rank_what_if
),
blame AS (
  SELECT
    MAX(l.blamed_ratio) AS blamed_ratio,
    ARG_MAX(l.rank, l.blamed_ns) AS rank,
    COUNT(*) FILTER (l.last_count > 0) AS ranks_count,
    SUM(l.last_count) AS judged_count,
    ANY_VALUE(job.scope) AS scope,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    LIST(l.rank ORDER BY l.rank) FILTER (l.last_count > 0) AS ranks
  FROM late_ranks AS l JOIN job USING (rank)
)
SELECT
  GREATEST(LEAST(COALESCE(gain_ns, per_step_ns), step_ns), 0) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  LEAST(per_step_ns, step_ns) AS waits_ns,
  step_ns,
  LEAST(per_step_ns, step_ns) / step_ns AS share_ratio,
  scope,
  rank,
  blamed_ratio,
  ranks_count,
  ranks,
  judged_count,
  CASE WHEN 2 * part_ns >= gain_ns AND part_ns > 0 THEN part END AS cause,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || ROUND(gain_ns / 1e6, 2) || ' ms if all take the mean' ELSE '' END AS job_gain,
  CASE WHEN part_ns > 0 AND 2 * part_ns >= gain_ns THEN CASE part
    WHEN 'compute' THEN '; what differs is compute'
    WHEN 'input' THEN '; what differs is the wait for data'
    WHEN 'gc' THEN '; what differs is garbage collection'
    WHEN 'copy' THEN '; what differs is copies'
    WHEN 'begin' THEN '; what differs is when they began the recording'
    ELSE '; what differs is idle time on the host''s account' END ELSE '' END AS because
FROM blame, waits, gain
WHERE LEAST(per_step_ns, COALESCE(gain_ns, per_step_ns)) > $min_share_ratio * step_ns
  AND blamed_ratio <= $min_blamed_ratio
  AND judged_count > $min_judged_count
  AND NOT EXISTS (  -- another rank's experts get more tokens each time: expert-imbalance says so
    FROM expert_balance AS e WHERE e.source = 'trace' AND e.ep_imbalance_ratio > 1.1 AND 2 * e.gain_ns >= per_step_ns
  )
