/*
title = "The host waits for the GPU, then the GPU for the host"
severity = "warning"
needs = ["mean_steps", "spans", "syncs", "kernels", "rank_what_if"]
needs_values = ["spans.dur_ns"]
decides = true
summary = "rank {rank}: the GPU idles {idle_ns} of {step_ns} {scope} ({share_ratio}) after {calls_count} blocking calls under {op}{job_gain}"
why = """
.item(), .cpu(), nonzero(), a boolean mask or torch.cuda.synchronize() stops the host until the device has finished.
Nothing is queued then: the device idles until the host has launched again. Only that idle time is counted, not the time
in the call, during which the device worked."""
fix = """
Keep values on the device and read them rarely: log every n steps, .detach() and accumulate, copy to pinned memory with
non_blocking=True and read it a step later. Instead of boolean masks use torch.where, instead of nonzero a fixed size; pass
Python numbers, not tensors, for sizes and slices. clip_grad_norm_(error_if_nonfinite=False). Megatron-LM: --log-interval,
no --timing-log-level 2, --no-check-for-nan-in-loss-and-grad; DeepSpeed: "wall_clock_breakdown": false; torchtitan:
metrics.log_freq. torch.cuda.set_sync_debug_mode("warn") prints where they are. MoE: dropless dispatch reads token counts on the
host; use a device-initiated dispatcher or capacity padding."""
quiet_when = "the device still had queued work when the call returned; the sync ends the recording or is the profiler's own"
collect = "a trace with both CPU and CUDA activities"
sources = [
  "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html (avoid unnecessary CPU-GPU synchronization)",
  "https://github.com/meta-pytorch/torchtune/pull/522 (per-step .item())",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step, per operator; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, sync_ns FROM mean_steps
),
blocked AS (
  SELECT
    y.rank,
    COALESCE(y.op, y.name) AS op,
    MODE(y.name) AS call,
    COUNT(*) AS calls,
    SUM(y.dur_ns) AS blocked_ns,
    SUM(y.idle_ns) AS idle_ns,
    MODE(y.module) AS module,
    MODE(y.source) AS source
  FROM syncs AS y SEMI JOIN spans AS s ON s.rank = y.rank AND s.step IS NOT DISTINCT FROM y.step
  GROUP BY y.rank, COALESCE(y.op, y.name)
),
gain AS (  -- what the job gains without such idle time on any rank; null where that was not replayed
  SELECT ANY_VALUE(gain_ns) AS all_ns FROM rank_what_if WHERE fixed = 'part' AND part = 'sync'
),
worst AS (  -- per operator the rank that loses most; of the job's gain, the operator's share of the waits
  SELECT
    blocked.* EXCLUDE (idle_ns),
    scope,
    spans_count,
    LEAST(idle_ns // spans_count, sync_ns) AS waits_ns,
    CAST(LEAST(all_ns * (idle_ns / SUM(idle_ns) OVER (PARTITION BY rank)), all_ns) AS BIGINT) AS gain_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM blocked JOIN job USING (rank), gain
  QUALIFY ROW_NUMBER() OVER (PARTITION BY op ORDER BY waits_ns DESC, rank) = 1
)
SELECT
  GREATEST(LEAST(COALESCE(gain_ns, waits_ns), step_ns), 0) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  waits_ns AS idle_ns,
  step_ns,
  scope,
  waits_ns / step_ns AS share_ratio,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || duration(gain_ns) || ' if no rank has it' ELSE '' END AS job_gain,
  CASE WHEN op LIKE '%cudnn%' OR op LIKE '%miopen%' THEN
    'The library times its algorithms for a shape it has not met (torch.backends.cudnn.benchmark): that ends after the first '
    || 'steps, so profile after warm-up; where shapes keep changing, pad them or set benchmark = False.' END AS fix,
  rank,
  [rank] AS ranks,
  op,
  call,
  calls / spans_count AS calls_count,
  blocked_ns // spans_count AS blocked_ns,
  module,
  source,
  NULL AS undecided
FROM worst
WHERE LEAST(waits_ns, COALESCE(gain_ns, waits_ns)) > $min_share_ratio * step_ns
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'no host call is recorded, so what the host waited for is not known' AS undecided
WHERE NOT EXISTS (FROM syncs)
  AND EXISTS (FROM kernels WHERE device IS NOT NULL)
  AND NOT EXISTS (FROM kernels WHERE launch_ns IS NOT NULL)
