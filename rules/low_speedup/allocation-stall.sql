/*
title = "The GPU waits while device memory is allocated or freed"
severity = "warning"
needs = ["mean_steps", "spans", "idle", "rank_what_if"]
needs_values = ["spans.dur_ns"]
decides = true
summary = "rank {rank}: the GPU idles {idle_ns} of {step_ns} {scope} ({share_ratio}) in {stalls_count} waits, most of them for {host}{job_gain}"
why = """
cudaFree waits for the device and cudaMalloc takes long. In steady state the caching allocator does neither: it does when
it is out of cached memory and frees its cache to try again, or when code empties the cache every step."""
fix = """
Let the cache work: drop torch.cuda.empty_cache() from the step; where there are hundreds of calls, see whether caching is off
and unset PYTORCH_NO_CUDA_MEMORY_CACHING (on ROCm also PYTORCH_NO_HIP_MEMORY_CACHING). If memory is near its limit the
allocator retries: lower the peak (micro-batch, recomputation, sharding) or cut fragmentation with
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which conflicts with CUDA IPC users and some allocators of inference engines
(vLLM's memory pool, older DeepEP) and is ignored by older ROCm builds: check before setting it. DeepSpeed: smaller
"stage3_max_live_parameters" instead of empty_cache. First steps always allocate: profile after a few of warm-up."""
quiet_when = "allocation is served from the cache, or only the first steps allocate and later ones are recorded too"
collect = "a trace with both CPU and CUDA activities"
sources = [
  "https://docs.pytorch.org/docs/stable/notes/cuda.html (memory management: cudaFree can synchronize)",
  "cudaFree and cudaMalloc storms slow whole jobs: https://arxiv.org/abs/2505.05713 section 5.5",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step, as for other waits; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, alloc_ns AS waits_ns FROM mean_steps
),
worst AS (
  SELECT *, (SELECT MAX(step_ns) FROM job) AS longest_ns
  FROM job
  ORDER BY waits_ns DESC, rank
  LIMIT 1
),
gain AS (  -- what the job gains without this idle time on any rank; null where that was not replayed
  SELECT ANY_VALUE(gain_ns) AS gain_ns FROM rank_what_if WHERE fixed = 'part' AND part = 'alloc'
),
stalls AS (
  SELECT COUNT(*) AS stalls, MODE(i.host) AS host, MODE(i.module) AS module, MODE(i.source) AS source
  FROM idle AS i SEMI JOIN spans AS s ON s.rank = i.rank AND s.step IS NOT DISTINCT FROM i.step
  WHERE i.cause = 'alloc' AND i.rank = (SELECT rank FROM worst)
)
SELECT
  GREATEST(LEAST(COALESCE(gain_ns, waits_ns), longest_ns), 0) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  waits_ns AS idle_ns,
  longest_ns AS step_ns,
  scope,
  waits_ns / longest_ns AS share_ratio,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || duration(gain_ns) || ' if no rank has it' ELSE '' END AS job_gain,
  rank,
  [rank] AS ranks,
  stalls / spans_count AS stalls_count,
  COALESCE(host, 'device memory') AS host,
  module,
  source
FROM worst, stalls, gain
WHERE LEAST(waits_ns, COALESCE(gain_ns, waits_ns)) > $min_share_ratio * longest_ns
