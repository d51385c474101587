/*
title = "Another rank is late every time"
severity = "warning"
general = true
needs = ["uneven_work"]
needs_values = ["uneven_work.judged_count"]
summary = "{ranks_count} ranks take turns in coming last, rank {rank} with the largest share of the lateness ({blamed_ratio}): {verb} {lost_ns} {scope} ({share_ratio}){condition}{because}"
why = """
When another rank is late every time, each step lasts as long as its slowest rank: the mean of a maximum. No rank is
broken; the work differs from step to step, or hosts stall at random."""
fix = """
Give ranks equal work: pack or bucket sequences by length and balance tokens, not samples, per rank; balance experts.
Random host stalls: pin processes to NUMA nodes, freeze and time garbage collection (gc.freeze, gc.collect every n
steps on all ranks together), move logging and checkpoints off the critical path. Less frequent synchronisation
(DDP no_sync, FSDP2 set_requires_gradient_sync(False) under gradient accumulation) averages the differences out."""
quiet_when = "one rank has most of the blame (late-rank), too few calls to tell, lateness hidden or below the clock error"
collect = "traces of all ranks over several steps, or records of the live hook of all ranks"
sources = [
  "sequence-length imbalance behind many stragglers, ranks take turns: https://arxiv.org/abs/2505.05713",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step; a guess, to be fitted" }
min_blamed_ratio = { default = 0.5, doc = "of all blame, from which one rank is the cause and late-rank speaks; definition" }
min_judged_count = { default = 8, doc = "calls in which the clocks tell the last rank; of fewer, turns are no pattern; a guess" }
*/
SELECT
  COALESCE(gain_ns, waits_ns) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  waits_ns,
  step_ns,
  COALESCE(gain_ns, waits_ns) / step_ns AS share_ratio,
  scope,
  rank,
  blamed_ratio,
  ranks_count,
  ranks,
  judged_count,
  cause,
  variation_ratio,
  CASE WHEN gain_ns IS NULL THEN 'waiting for the last takes' ELSE 'the job would win' END AS verb,
  CASE WHEN gain_ns IS NULL THEN '' ELSE ' if all took the mean' END AS condition,
  CASE cause
    WHEN 'compute' THEN '; what differs is compute'
    WHEN 'input' THEN '; what differs is the wait for data'
    WHEN 'gc' THEN '; what differs is garbage collection'
    WHEN 'copy' THEN '; what differs is copies'
    WHEN 'begin' THEN '; what differs is when they began the recording'
    WHEN 'host' THEN '; what differs is idle time on the host''s account'
    ELSE '' END AS because
FROM uneven_work
WHERE evidence <> 'pipeline'  -- micro-batches take no turns: uneven-batch looks at them
  AND LEAST(waits_ns, COALESCE(gain_ns, waits_ns)) > $min_share_ratio * step_ns
  AND blamed_ratio <= $min_blamed_ratio
  AND judged_count > $min_judged_count
  AND COALESCE(2 * expert_gain_ns < waits_ns, true)  -- another rank's experts get more tokens each time: expert-imbalance
