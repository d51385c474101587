/*
title = "The GPU waits for the host to launch kernels"
severity = "warning"
needs = ["mean_steps", "spans", "idle", "kernels", "profiler_cost", "rank_what_if"]
needs_values = ["kernels.launch_ns"]
decides = true
summary = "rank {rank}: idle {idle_ns} of {step_ns} {scope} ({share_ratio}) because the next kernel was launched late, {host_ratio} of it before {host}; {kernels_count} kernels of {median_ns} median{job_gain}{distortion}"
why = """
A kernel of a few microseconds ends before Python and the launch path have issued the next: the GPU runs at the host's
speed, and more or faster GPUs change nothing."""
fix = """
Fewer, longer kernels: a larger micro-batch (memory), torch.compile (mode="reduce-overhead" adds CUDA graphs), fused
optimizers (torch.optim.AdamW(fused=True)), fused norms and activations. CUDA graphs: Megatron-LM --cuda-graph-impl /
--enable-cuda-graph, torch.cuda.make_graphed_callables (static shapes; graphs keep their own memory pools, and NCCL inside
them must be captured). Megatron-LM MoE: grouped GEMM (--moe-grouped-gemm) instead of one kernel per expert. On the host: pin
processes to the GPU's NUMA node, give each enough cores (OMP_NUM_THREADS), keep Python loops over parameters (foreach=True
instead), logging and hooks out of the step."""
quiet_when = """
launches run ahead of the device; the idle time has another cause (loader, synchronise, garbage collection, allocation)"""
sources = [
  "a CUDA launch costs a few microseconds on the host: https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/",
]
[params]
min_share_ratio = { default = 0.10, doc = "of the step; profiling itself slows launches, so smaller shares prove nothing; a guess, to be fitted" }
max_launch_ns = { default = 1000000, doc = "idle time a kernel; launches cost microseconds, with Python and a profiler tens to hundreds: above, the host does something else; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, launch_ns AS late_ns, idle_ns AS unknown_ns FROM mean_steps
),
worst AS (
  SELECT *, (SELECT MAX(step_ns) FROM job) AS longest_ns
  FROM job
  ORDER BY late_ns DESC, unknown_ns DESC, rank
  LIMIT 1
),
blamed AS (
  SELECT
    COALESCE(i.host, i.module) AS host,
    SUM(i.dur_ns) / SUM(SUM(i.dur_ns)) OVER () AS ratio,
    MODE(i.source) AS source,
    MODE(i.before) AS before
  FROM idle AS i
  SEMI JOIN spans AS s ON s.rank = i.rank AND s.step IS NOT DISTINCT FROM i.step
  WHERE i.cause = 'launch' AND i.rank = (SELECT rank FROM worst)
  GROUP BY COALESCE(i.host, i.module)
  ORDER BY SUM(i.dur_ns) DESC
  LIMIT 1
),
work AS (
  SELECT COUNT(*) AS kernels, CAST(MEDIAN(k.dur_ns) AS BIGINT) AS median_ns, AVG(CAST(k.graph AS INT)) AS graph_ratio
  FROM kernels AS k
  SEMI JOIN spans AS s ON s.rank = k.rank AND s.step IS NOT DISTINCT FROM k.step
  WHERE k.class <> 'copy' AND k.rank = (SELECT rank FROM worst)
),
gain AS (  -- what the job gains without this idle time on any rank; null where that was not replayed
  SELECT ANY_VALUE(gain_ns) AS gain_ns FROM rank_what_if WHERE fixed = 'part' AND part = 'launch'
),
profiled AS (
  SELECT COUNT(*) > 0 AS stacks FROM profiler_cost WHERE kind = 'stacks' AND rank = (SELECT rank FROM worst)
)
SELECT
  GREATEST(LEAST(COALESCE(gain_ns, late_ns), longest_ns), 0) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  late_ns AS idle_ns,
  longest_ns AS step_ns,
  scope,
  late_ns / longest_ns AS share_ratio,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || duration(gain_ns) || ' if no rank has it' ELSE '' END AS job_gain,
  rank,
  [rank] AS ranks,
  COALESCE((SELECT host FROM blamed), 'no recorded operator') AS host,
  (SELECT ratio FROM blamed) AS host_ratio,
  (SELECT source FROM blamed) AS source,
  (SELECT before FROM blamed) AS before,
  kernels // spans_count AS kernels_count,
  median_ns,
  graph_ratio,
  CASE WHEN stacks THEN '; stacks were recorded, which slows launches: confirm without with_stack' ELSE '' END AS distortion,
  CASE WHEN stacks THEN 0.4 ELSE 0.8 END AS confidence_ratio,
  CASE WHEN late_ns // GREATEST(1, kernels // spans_count) > $max_launch_ns THEN
    'The host is not slow to launch, it does something else before it does: see which operators it is in (CPU activities, '
    || 'with_stack=True) and move that work out of the step. The first call of anything is slow (device context, library '
    || 'handles, compilation, autotuning): profile after a few steps of warm-up.' END AS fix,
  CASE WHEN LEAST(late_ns, COALESCE(gain_ns, late_ns)) <= $min_share_ratio * longest_ns THEN
    'the GPU idles for causes that the recording does not show; '
    || 'needed: a trace with CPU activities and with_stack=True, which shows what the host does in between' END AS undecided
FROM worst, work, profiled, gain
WHERE GREATEST(LEAST(late_ns, COALESCE(gain_ns, late_ns)), unknown_ns) > $min_share_ratio * longest_ns
