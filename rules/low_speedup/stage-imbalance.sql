/*
title = "One pipeline stage takes longer than the others"
severity = "warning"
needs = ["bubbles", "stages", "pipeline", "what_if"]
needs_values = ["bubbles.imbalance_ns", "stages.ratio"]
summary = "stage {stage} computes {compute_ns} for a micro-batch, the others {others_ns} on average ({more_ratio} more): an even split would win {lost_ns} a step ({share_ratio}){hint}"
why = """
Every micro-batch passes every stage, so the slowest one sets the pace and the others wait for it in every turn. The last
stage has the output layer and the loss on top of its layers, the first one the embedding; equal numbers of layers are not
equal times."""
fix = """
Move layers away from the stage. Megatron-LM: --decoder-last-pipeline-num-layers and --decoder-first-pipeline-num-layers,
--account-for-loss-in-pipeline-split and --account-for-embedding-in-pipeline-split, or --pipeline-model-parallel-layout;
torchtitan: pipeline_parallel_last_stage_less_layers, pipeline_parallel_first_stage_less_layers; DeepSpeed:
PipelineModule(partition_method=...) by measured times instead of "uniform". A vocabulary split over tensor ranks or the
loss in chunks makes the last stage lighter. If one stage's layers are like the others', look at its GPU first."""
quiet_when = """
stages are even within a few percent, or uneven without a loss for the step; one copy of a stage that is slower than its
other copies is a slow worker, not an uneven split"""
collect = "a pipeline timeline or traces of one rank per stage"
sources = [
  "last stage: output layer above nine layers' time, tuned by hand +9.9 %: https://arxiv.org/abs/2505.05713 section 5.2",
  "one layer less on the first and last stage: https://arxiv.org/abs/2407.21783 section 3.3.2",
]
[params]
min_share_ratio = { default = 0.02, doc = "of the pipeline's step; a guess, to be fitted" }
min_more_ratio = { default = 0.04, doc = "more time of the stage than the others' mean; a guess, to be fitted" }
*/
WITH slowest AS (
  SELECT * FROM bubbles WHERE analysed AND measured
  QUALIFY ROW_NUMBER() OVER (PARTITION BY step ORDER BY dur_ns DESC, replica) = 1
),
job AS (
  SELECT AVG(imbalance_ns) AS imbalance_ns, CAST(AVG(dur_ns) AS BIGINT) AS pipeline_ns, COUNT(*) AS steps_count
  FROM slowest
),
stage AS (
  SELECT
    stage,
    CAST(AVG(compute_ns) AS BIGINT) AS compute_ns,
    CAST(AVG(others_ns) AS BIGINT) AS others_ns,
    CAST(AVG(forward_ns) AS BIGINT) AS forward_ns,
    CAST(AVG(backward_ns) AS BIGINT) AS backward_ns,
    MIN(replicas_count) AS replicas_count
  FROM stages
  WHERE analysed
  GROUP BY stage
),
replayed AS (  -- the whole step replayed: S, M_S and M_W as the published method defines them
  SELECT
    ANY_VALUE(step_ns) FILTER (fixed = 'nothing') AS simulated_ns,
    ANY_VALUE(measured_ns) FILTER (fixed = 'nothing') AS measured_ns,
    ANY_VALUE(error_ratio) FILTER (fixed = 'nothing') AS error_ratio,
    ANY_VALUE(step_ns) FILTER (fixed = 'everything') AS ideal_ns,
    ANY_VALUE(slowdown_ratio) FILTER (fixed = 'everything') AS slowdown_ratio,
    ARG_MAX(explained_ratio, stage) FILTER (fixed = 'stage') AS m_s_ratio,
    ANY_VALUE(explained_ratio) FILTER (fixed = 'slowest_workers') AS m_w_ratio
  FROM what_if
),
heaviest AS (
  SELECT *, compute_ns / NULLIF(others_ns, 0) - 1 AS more_ratio FROM stage ORDER BY compute_ns DESC, stage LIMIT 1
)
SELECT
  CAST(GREATEST(imbalance_ns, 0) AS BIGINT) AS lost_ns,
  'simulated' AS lost_kind,
  imbalance_ns / pipeline_ns AS share_ratio,
  stage,
  compute_ns,
  others_ns,
  more_ratio,
  forward_ns,
  backward_ns,
  replicas_count,
  steps_count,
  pipeline_ns,
  slowdown_ratio,
  m_s_ratio,
  m_w_ratio,
  simulated_ns,
  ideal_ns,
  measured_ns,
  error_ratio,
  CASE
    WHEN stage = (SELECT MAX(stage) FROM stage) THEN '; it is the last one, with the output layer and the loss'
    WHEN stage = 0 THEN '; it is the first one, with the embedding'
    WHEN replicas_count = 1 THEN '; only one copy is recorded, so a slow GPU there would look the same'
    ELSE ''
  END AS hint,
  CASE WHEN replicas_count = 1 THEN 0.8 ELSE 1.0 END AS confidence_ratio,
  (SELECT LIST(DISTINCT p.rank ORDER BY p.rank) FROM pipeline AS p WHERE p.stage = heaviest.stage AND p.rank >= 0) AS ranks
FROM heaviest CROSS JOIN job CROSS JOIN replayed
WHERE imbalance_ns > $min_share_ratio * pipeline_ns
  AND more_ratio > $min_more_ratio
