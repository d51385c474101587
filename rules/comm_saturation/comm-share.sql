/*
title = "Communication that nothing hides takes a large share of the step"
severity = "warning"
needs = ["spans", "collectives", "doubts", "bubbles"]
needs_values = ["spans.dur_ns"]
decides = true
general = true
summary = "{lost_ns} of {step_ns} {scope} ({share_ratio}) is communication that no compute hides, {main_ratio} of it {main_op}; {counted}"
why = """
While a rank only communicates it does no useful work, and this time grows with the number of GPUs while compute per GPU
does not. Of all communication only the exposed part costs: what runs under compute is free."""
fix = """
Where waiting may be included, record the same steps on all ranks first: that tells it apart, and it is not cured here.
What is left is transfer; in this order, each leaves its own mark in the trace. (1) No overlap although there is compute: a
stream wait or shared stream, a prefetch that comes too late (FSDP2: set_modules_to_forward_prefetch; FSDP1:
backward_prefetch, forward_prefetch, limit_all_gathers), one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1 suits Megatron's
tensor parallelism, not FSDP), a host synchronise between. (2) Overlap switched off: Megatron-LM --overlap-grad-reduce
--overlap-param-gather, DeepSpeed "overlap_comm": true; a gradient hook or all-reduce of your own instead of DDP's. (3) More
bytes than compute can hide: a larger micro-batch or gradient accumulation without synchronising (DDP no_sync, FSDP2
set_requires_gradient_sync(False), which keeps unsharded gradients and costs memory), 16-bit reduction, sharding inside a
node only, less tensor parallelism. (4) A slow link: run nccl-tests on the same nodes before blaming it."""
quiet_when = """
communication runs under compute; waiting for late ranks takes more than the transfer (then it is a remark); no compute was
recorded (a communication benchmark); kernels of unknown kind could change the verdict. With traces of several ranks the one that waits least is counted. Where a pipeline's work was measured,
sends and receives whose waiting is not told apart are left out: they mostly wait, and the pipeline's own rules count that."""
sources = [
  "exposed share of 5.6 % in a public 8 x H100 record run: https://github.com/KellerJordan/modded-nanogpt (2025-10-31_AdamSyncGradientHook)",
  "+3.5 % of the step without any overlap of data-parallel traffic: https://arxiv.org/abs/2205.05198 section 6.3",
]
[params]
min_share_ratio = { default = 0.10, doc = "of the step; about twice what tuned public runs leave exposed (sources); a guess, to be fitted" }
critical_share_ratio = { default = 0.30, doc = "of the step, from which it is critical; a guess, to be fitted" }
*/
WITH counted AS (
  SELECT c.* FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
),
piped AS (
  SELECT rank, CAST(SUM(exposed_ns) AS BIGINT) AS piped_ns FROM counted
  WHERE op IN ('send', 'recv', 'p2p') AND wait_ns IS NULL AND EXISTS (FROM bubbles WHERE measured)
  GROUP BY rank
),
job AS (  -- one row per rank
  SELECT
    rank,
    ANY_VALUE(scope) AS scope,
    ANY_VALUE(mean_ns) AS step_ns,
    GREATEST(SUM(comm_ns) - COALESCE(ANY_VALUE(piped_ns), 0), 0) // COUNT(*) AS exposed_ns,
    SUM(wait_ns) // COUNT(*) AS own_waiting_ns,
    SUM(unclassified_ns) // COUNT(*) AS unclassified_ns,
    SUM(compute_ns) AS compute_ns
  FROM spans LEFT JOIN piped USING (rank)
  GROUP BY rank
),
main AS (
  SELECT
    c.op || ' of ' || CASE WHEN c.dim = 'other' THEN 'a group of unnamed dimension' ELSE c.dim END AS main_op,
    SUM(c.exposed_ns) / NULLIF(SUM(SUM(c.exposed_ns)) OVER (), 0) AS main_ratio,
    BOOL_AND(BOOL_AND(c.wait_ns IS NOT NULL OR c.exposed_ns = 0)) OVER () AS matched
  FROM counted AS c
  WHERE NOT (c.op IN ('send', 'recv', 'p2p') AND c.wait_ns IS NULL AND EXISTS (FROM bubbles WHERE measured))
  GROUP BY c.op, c.dim
  ORDER BY SUM(c.exposed_ns) DESC, c.op
  LIMIT 1
),
verdict AS (
  SELECT
    *,
    (SELECT COUNT(*) FROM job) AS ranks_count,
    (SELECT MAX(step_ns) FROM job) AS longest_ns,
    (SELECT AVG(own_waiting_ns) FROM job) AS waiting_ns,
    COALESCE((SELECT matched FROM main), FALSE) AS matched,
    EXISTS (FROM doubts WHERE problem = 'comm_kernels_missing') AS missing
  -- Waiting for a late rank is in the kernels of those that wait, so the rank with the least bounds the transfer.
  FROM job
  ORDER BY exposed_ns, rank
  LIMIT 1
)
SELECT
  exposed_ns AS lost_ns,
  longest_ns AS step_ns,
  exposed_ns / longest_ns AS share_ratio,
  scope,
  COALESCE((SELECT main_op FROM main), 'of unknown operation') AS main_op,
  (SELECT main_ratio FROM main) AS main_ratio,
  ranks_count,
  CASE
    WHEN matched AND waiting_ns > exposed_ns THEN 'transfer only: waiting for late ranks takes more, so look there first (low speed-up)'
    WHEN matched THEN 'transfer only'
    WHEN ranks_count = 1 THEN 'waiting for other ranks is included, as only one rank was seen'
    ELSE 'counted on the rank that waits least; waiting may still be included'
  END AS counted,
  CASE
    WHEN exposed_ns > $critical_share_ratio * longest_ns THEN 'critical'
    WHEN matched AND waiting_ns > exposed_ns THEN 'info'  -- late ranks are the trouble, not the network
    ELSE 'warning'
  END AS severity,
  CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END AS confidence_ratio,
  [rank] AS ranks,
  CASE
    WHEN compute_ns = 0 THEN 'no compute was recorded, so nothing could have hidden communication; '
      || 'needed: a trace of whole training steps with CPU and CUDA activities'
    WHEN missing THEN 'collectives were called, but no communication kernel was recorded; '
      || 'needed: a trace whose recording spans whole steps with CUDA activities'
    WHEN exposed_ns <= $min_share_ratio * longest_ns THEN 'kernels of unknown kind may be communication'
  END AS undecided
FROM verdict
WHERE exposed_ns + unclassified_ns > $min_share_ratio * longest_ns
  OR compute_ns = 0
  OR missing
