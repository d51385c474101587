/*
title = "The pipeline idles by its schedule"
severity = "warning"
general = true
needs = ["bubbles"]
needs_values = ["bubbles.bubble_ratio"]
summary = "{stages_count} stages and {microbatches_count} micro-batches ({schedule}): {share_ratio} of the step is the schedule's bubble, {evidence}"
why = """
A stage cannot work before the first micro-batch has come to it, nor after the last has left. With p stages and m
micro-batches that is (p-1)/(m+p-1) of the step under GPipe and 1F1B: at m = p half the step, and small only from several
micro-batches per stage on. 1F1B saves memory against GPipe, not time. The bubble is idle time of even stages without
any transfer; uneven stages, slow workers and links come on top of it."""
fix = """
In this order: more micro-batches per step (a smaller micro-batch or a larger global batch: Megatron-LM --micro-batch-size
and --global-batch-size, torchtitan pipeline_parallel_microbatch_size, DeepSpeed gradient_accumulation_steps); fewer
stages where memory allows (recompute or shard instead); a schedule that idles less: interleaved stages divide the bubble
by the chunks per stage and multiply the transfers (Megatron-LM --num-layers-per-virtual-pipeline-stage, micro-batches in
multiples of the stages; torchtitan pipeline_parallel_schedule = "Interleaved1F1B"), zero bubble takes weight gradients
apart (torchtitan "ZBVZeroBubble", DualPipe)."""
quiet_when = """
the bubble is small against the step, there is one stage, or neither timelines nor settings tell stages and
micro-batches; a schedule whose law is not known and whose order cannot be replayed gives no answer"""
collect = "a pipeline timeline or traces of one rank per stage, or a log that prints pipeline stages and batch sizes"
sources = [
  "bubble (p-1)/m of ideal compute, (p-1)/(v m) interleaved: https://arxiv.org/abs/2104.04473 section 2.2",
  "zero-bubble schedules: https://arxiv.org/abs/2401.10241",
  "negligible when micro-batches are at least four times the stages: https://arxiv.org/abs/1811.06965 section 2.3",
]
[params]
min_share_ratio = { default = 0.08, doc = "of the step: a plain schedule reaches it at about 12 micro-batches per stage; a guess, to be fitted" }
critical_share_ratio = { default = 0.40, doc = "of the step, from which it is critical; a guess, to be fitted" }
*/
WITH slowest AS (  -- the copy that takes longest sets the pace of the step
  SELECT * FROM bubbles WHERE analysed
  QUALIFY ROW_NUMBER() OVER (PARTITION BY step ORDER BY dur_ns DESC NULLS LAST, replica) = 1
),
job AS (
  SELECT
    BOOL_AND(measured) AS measured,
    MODE(schedule)::VARCHAR AS schedule,
    MODE(stages_count) AS stages_count,
    MODE(microbatches_count) AS microbatches_count,
    MODE(chunks_count) AS chunks_count,
    CAST(AVG(dur_ns) AS BIGINT) AS pipeline_ns,
    AVG(bubble_ns) AS bubble_ns,
    AVG(bubble_ratio) AS bubble_ratio,
    AVG(law_ratio) AS law_ratio,
    AVG(idle_ratio) AS idle_ratio,
    AVG(stage_law_ratio) AS stage_law_ratio,
    COUNT(*) AS steps_count
  FROM slowest
),
judged AS (
  SELECT *, CASE WHEN measured THEN bubble_ns / pipeline_ns ELSE bubble_ratio END AS share_ratio
  FROM job
)
SELECT
  COALESCE(CAST(CASE WHEN measured THEN bubble_ns ELSE bubble_ratio * pipeline_ns END AS BIGINT), 0) AS lost_ns,
  CASE WHEN measured THEN 'simulated' ELSE 'bound' END AS lost_kind,
  share_ratio,
  law_ratio,
  idle_ratio,
  stage_law_ratio,
  pipeline_ns,
  schedule,
  stages_count,
  microbatches_count,
  chunks_count,
  steps_count,
  measured,
  CASE
    WHEN measured THEN printf('measured over %d steps; ', steps_count)
      || COALESCE(printf('its law says %.1f %%', 100 * law_ratio), 'no law is known for its order')
      || printf(', and %.1f %% of the pipeline is idle in all', 100 * idle_ratio)
    ELSE 'by its law for the printed settings, not measured'
  END AS evidence,
  CASE WHEN share_ratio > $critical_share_ratio THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN measured THEN 1.0 ELSE 0.7 END AS confidence_ratio
FROM judged
WHERE share_ratio > $min_share_ratio
