/*
title = "From one step on, steps take longer"
severity = "warning"
needs = ["trends", "slowdowns"]
needs_values = ["trends.early"]
decides = true
general = true
summary = "the step takes {change_ratio} longer from step {from_step}{ended}; {cause_text}"
why = """
The step time changes its level at one step and keeps it, or returns later. Something happened there: a GPU, a host or a link became
slower, another job came, the data or the program changed."""
fix = """
Look what happened at that step: the findings on ranks, clocks and input, the host's log (dmesg, Xid), the scheduler, restarts. Where
none shows, record step times of all ranks with GPU clocks; DDP, FSDP2, Megatron-LM and DeepSpeed alike wait for the slowest rank."""
quiet_when = "the step keeps its level over at least 1,000 steps, or only single steps stand out"
collect = "a training log or step records of at least 1,000 steps"
sources = [
  "https://github.com/pytorch/pytorch/issues/117550",
  "https://arxiv.org/abs/2505.05713 (what-if analysis of stragglers in large jobs)",
]
[params]
min_change_ratio = { default = 0.01, doc = "of the step before the change; smaller ones are real but not worth a search; a choice" }
min_covered_count = { default = 1000, doc = "steps a record must cover before no drift means none: users see it after thousands; a choice" }
*/
WITH job AS (
  SELECT *, early * (1 + change_ratio) AS behind
  FROM trends
  WHERE metric::VARCHAR = 'step' AND rank IS NULL
),
cause AS (
  SELECT STRING_AGG(
    CASE WHEN cause::VARCHAR = 'unknown' THEN 'cause unknown, collect ' || COALESCE(collect, 'traces')
         ELSE 'cause: ' || REPLACE(cause::VARCHAR, '_', ' ') || COALESCE(' on rank ' || ARRAY_TO_STRING(ranks, ', '), '') END, '; '
  ) AS text
  FROM slowdowns
)
SELECT
  COALESCE(CASE WHEN timed THEN GREATEST(0, mean - early) ELSE 0 END, 0)::BIGINT AS lost_ns,
  CASE WHEN timed THEN early::BIGINT END AS early_ns,
  CASE WHEN timed THEN late::BIGINT END AS late_ns,
  change_ratio,
  from_step,
  until_step,
  first_step,
  last_step,
  steps_count,
  noise_ratio,
  stalls_count,
  COALESCE(confidence_ratio, 0.5) AS confidence_ratio,
  COALESCE((SELECT text FROM cause), 'cause unknown') AS cause_text,
  CASE WHEN until_step IS NULL THEN '' ELSE ' until step ' || until_step END AS ended,
  NULL AS undecided
FROM job
WHERE shape::VARCHAR IN ('step', 'bump') AND change_ratio > $min_change_ratio
UNION ALL BY NAME
SELECT 0 AS lost_ns,
  'only ' || COALESCE(covered_count, 0) || ' steps (' || COALESCE(steps_count, 0) || ' values) are logged: no drift there says nothing about thousands' AS undecided
FROM job
WHERE shape::VARCHAR = 'short' OR covered_count IS NULL
  OR (shape::VARCHAR = 'level' AND covered_count < $min_covered_count)
