/*
title = "One rank works longer than the others in every step"
severity = "warning"
needs = ["slow_ranks"]
summary = "rank {rank} works {own_ns} of a step of {step_ns}, the others {others_ns} and wait for it: {lost_ns} ({share_ratio}) a step{cause}"
why = """
All ranks of a synchronous step wait for the one that works longest. It shows in step records without a trace: its own time
is long and its communication short, and on all others it is the other way round."""
fix = """
Look at what this rank does between two steps: its DataLoader (num_workers, a slow disk), logging or checkpoints that only
it writes, uneven layers or sequences (Megatron-LM: --decoder-first-pipeline-num-layers and its kin), a slow host or GPU
(nvidia-smi -q -d CLOCK,PERFORMANCE; move the rank to another host to tell hardware from work). A capture of this rank and
another shows it operator by operator: diagnose attach RUN capture"""
quiet_when = """
no rank leads in most steps, its lead is small, or the others do not wait: time that the records do not see as waiting
could be either"""
collect = "records of the live hook of all ranks (diagnose launch)"
sources = [
  "stragglers cost 10 % and more of the time in a fifth of the jobs of a large cluster: https://arxiv.org/abs/2505.05713",
  "maintainers on long collectives behind a slow rank: https://github.com/NVIDIA/nccl/issues/893",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step that the rank costs; below, it drowns in noise between ranks; a guess" }
critical_share_ratio = { default = 0.20, doc = "of the step, from which it is critical; a guess, to be fitted" }
min_longest_ratio = { default = 0.6, doc = "of the steps in every third of the run, in which it works longest: the same rank every time; a guess" }
*/
SELECT
  rank,
  ranks,
  own_ns,
  others_ns,
  step_ns,
  LEAST(lost_ns, step_ns) AS lost_ns,
  LEAST(lost_ns, step_ns) / step_ns AS share_ratio,
  longest_ratio,
  comm_ns,
  others_comm_ns,
  steps_count,
  part,
  CASE WHEN part IS NULL THEN '' ELSE '; ' || duration(part_ns) || ' of it in ' || CASE part::VARCHAR
    WHEN 'input' THEN 'its data loader' WHEN 'gc' THEN 'garbage collection' ELSE 'checkpoints' END END AS cause,
  CASE WHEN lost_ns > $critical_share_ratio * step_ns THEN 'critical' ELSE 'warning' END AS severity,
  LEAST(0.95, longest_ratio) AS confidence_ratio
FROM slow_ranks
WHERE confirmed
  AND lost_ns > $min_share_ratio * step_ns
  AND longest_ratio > $min_longest_ratio
