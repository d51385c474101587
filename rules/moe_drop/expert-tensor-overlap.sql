/*
title = "Expert- and tensor-parallel collectives run at once and slow each other"
severity = "warning"
needs = ["exchanges", "mean_steps", "spans"]
summary = "{overlap_ratio} of the time of exchanges with experts falls under tensor- or context-parallel collectives, where a byte takes {slower_ratio} of its time alone; that costs {lost_ns} {scope} ({share_ratio})"
why = """
Both use the same links and, as kernels, the same processors: side by side neither reaches its bandwidth. Expert tensor parallelism puts a gather and
a reduce-scatter around every exchange and makes it likely."""
fix = """
Give experts no tensor parallelism of their own: Megatron-LM --expert-tensor-parallel-size 1 and more --expert-model-parallel-size, so that EP x TP stays
inside the fast domain; torchtitan expert_tensor_parallel_degree 1. Else order them: one stream for both, CUDA_DEVICE_MAX_CONNECTIONS=1 (Megatron-LM),
or fewer processors for each (NCCL_MAX_CTAS, DeepEP's num_sms)."""
quiet_when = "they do not overlap, or exchanges are no slower where they do; exchanges are hidden under compute"
collect = "a torch.profiler trace with CUDA activities of a job with expert and tensor parallelism"
sources = [
  "EP x TP inside the fast domain, ETP 1 preferred: https://github.com/NVIDIA/Megatron-LM (docs, MoE)",
  "processors set aside for communication: https://arxiv.org/abs/2412.19437 (section 3.2.2)",
]
[params]
min_overlap_ratio = { default = 0.2, doc = "of the time of exchanges that falls under other collectives; a guess, to be fitted" }
min_share_ratio = { default = 0.02, doc = "of the step, that overlap costs; below, nobody acts; a guess" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0
),
moved AS (
  SELECT
    e.rank,
    e.dur_ns - COALESCE(e.wait_ns, 0) AS transfer_ns,
    e.exposed_ns - COALESCE(e.exposed_wait_ns, 0) AS exposed_ns,
    e.tp_overlap_ns,
    GREATEST(COALESCE(e.sent_bytes, 0), COALESCE(e.received_bytes, 0)) AS moved_bytes
  FROM exchanges AS e SEMI JOIN spans AS s ON s.rank = e.rank AND s.step IS NOT DISTINCT FROM e.step
  WHERE e.way <> 'extra'
),
rates AS (  -- time of a byte; where no size is recorded, of an exchange
  SELECT
    MEDIAN(transfer_ns / NULLIF(moved_bytes, 0)) FILTER (tp_overlap_ns > 0.5 * transfer_ns) AS together,
    MEDIAN(transfer_ns / NULLIF(moved_bytes, 0)) FILTER (tp_overlap_ns < 0.1 * transfer_ns) AS alone
  FROM moved
),
ranks_ AS (
  SELECT
    rank,
    SUM(LEAST(tp_overlap_ns, transfer_ns)) / NULLIF(SUM(transfer_ns), 0) AS overlap_ratio,
    SUM(exposed_ns) FILTER (tp_overlap_ns > 0.5 * transfer_ns) AS together_ns
  FROM moved
  GROUP BY rank
),
least AS (
  SELECT
    ranks_.rank,
    ranks_.overlap_ratio,
    rates.together / rates.alone AS slower_ratio,
    job.scope,
    LEAST(ROUND(together_ns * (1 - rates.alone / rates.together) / job.spans_count), job.comm_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM ranks_ JOIN job USING (rank), rates
  WHERE rates.together > rates.alone
  QUALIFY ROW_NUMBER() OVER (ORDER BY lost_ns, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  lost_ns / step_ns AS share_ratio,
  scope,
  overlap_ratio,
  slower_ratio,
  [rank] AS ranks
FROM least
WHERE overlap_ratio > $min_overlap_ratio AND lost_ns > $min_share_ratio * step_ns
