/*
title = "One rank needs more memory than the others"
severity = "warning"
needs = ["memory", "memory_moments", "files"]
needs_values = ["memory.rank"]
summary = "rank {rank} peaks at {peak_bytes} ({figure}), {more_ratio} above the median of {ranks_count} ranks ({median_bytes})"
why = """
Every rank must fit, so the fullest one decides. Pipeline stages hold different numbers of micro-batches, the last has the logits,
experts get different numbers of tokens, and a stray process or tensor on GPU 0 counts, too. While the fullest rank has room to
spare, this costs nothing: stages differ by design."""
fix = """
Find what that rank holds more of in the memory parts. Pipeline: move layers away from the first stage (Megatron-LM
--decoder-first-pipeline-num-layers, torchtitan pipeline layers per stage). Experts: balance them or set a capacity factor.
Variable lengths: pack or sort sequences. Rank 0: torch.load with map_location, torch.cuda.set_device before the first CUDA call."""
quiet_when = "ranks peak alike, differ by less than a gigabyte, or only one rank was recorded"
collect = "snapshots, traces with profile_memory=True, or logged memory figures of all ranks over the same steps"
sources = ["https://arxiv.org/abs/2205.05198 section 4.2.3"]
[params]
min_more_ratio = { default = 0.1, doc = "above the median of all ranks; a guess, to be fitted" }
min_tight_ratio = { default = 0.8, doc = "of its device that the fullest rank needs, or a failure: below, the difference is only mentioned; a guess, to be fitted" }
min_more_bytes = { default = 1073741824, doc = "above the median: 1 GiB, about a hundredth of a training GPU; less is noise or host memory; a guess, to be fitted" }
*/
WITH known AS (  -- without totals a trace sees only what was made since it began
  FROM memory WHERE source::VARCHAR <> 'trace' OR reserved_bytes IS NOT NULL
),
long AS (
  SELECT rank, source::VARCHAR AS source, COALESCE(peak_allocated_bytes, allocated_bytes) AS size_bytes, 'allocated' AS figure
  FROM known
  UNION ALL
  SELECT rank, source::VARCHAR, COALESCE(peak_reserved_bytes, reserved_bytes), 'reserved' FROM known
  UNION ALL
  SELECT rank, source::VARCHAR, used_bytes, 'in use' FROM known
),
peaks AS (
  SELECT rank, source, figure, MAX(size_bytes) AS peak_bytes FROM long WHERE size_bytes IS NOT NULL AND rank >= 0 GROUP BY ALL
),
job AS (
  SELECT source, figure, COUNT(*) AS ranks_count, MEDIAN(peak_bytes) AS median_bytes
  FROM peaks
  GROUP BY source, figure
  HAVING COUNT(*) > 1  -- a log and a snapshot do not measure the same moments
),
devices AS (
  SELECT rank, MAX(size) AS capacity_bytes FROM (
    SELECT rank, gpu_memory_bytes AS size FROM files UNION ALL SELECT rank, capacity_bytes FROM memory_moments
  ) GROUP BY rank
),
failed AS (
  SELECT COUNT(*) AS failures_count FROM memory_moments WHERE moment::VARCHAR = 'oom'
),
best AS (
  FROM job ORDER BY ranks_count DESC, source DESC, figure LIMIT 1
)
SELECT
  0 AS lost_ns,
  (p.peak_bytes - b.median_bytes)::BIGINT AS lost_bytes,
  p.rank,
  [p.rank] AS ranks,
  p.peak_bytes,
  b.figure,
  b.ranks_count,
  b.median_bytes::BIGINT AS median_bytes,
  p.peak_bytes / b.median_bytes - 1 AS more_ratio,
  CASE WHEN failures_count > 0 OR p.peak_bytes > $min_tight_ratio * capacity_bytes THEN 'warning' ELSE 'info' END AS severity,
  NULL AS undecided
FROM peaks AS p JOIN best AS b USING (source, figure) LEFT JOIN devices USING (rank), failed
WHERE p.peak_bytes > (1 + $min_more_ratio) * b.median_bytes
  AND p.peak_bytes - b.median_bytes >= $min_more_bytes
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'only one rank''s memory was recorded' AS undecided
WHERE NOT EXISTS (FROM best)
