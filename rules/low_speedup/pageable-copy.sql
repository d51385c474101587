/*
title = "Copies from pageable host memory hold up the GPU"
severity = "info"
needs = ["mean_steps", "spans", "copies"]
needs_values = ["copies.pageable"]
summary = "rank {rank}: {lost_ns} of {step_ns} {scope} ({share_ratio}) in {calls_count} {direction} copies of pageable memory that nothing hides ({size_bytes}, {rate_bytes_per_s})"
why = """
Pageable memory is first copied to a staging buffer by the host: the copy is slower, the host is blocked, and
non_blocking=True has no effect."""
fix = """
DataLoader(pin_memory=True) or tensor.pin_memory(), then .to(device, non_blocking=True) one step ahead on its own stream.
Offloading: FSDP2 CPUOffloadPolicy(pin_memory=True), DeepSpeed "offload_optimizer": {"pin_memory": true}. Pinned memory cannot
be swapped: keep it below the host's free memory."""
quiet_when = """
the copies are pinned, hidden under kernels, or only a few bytes (reading a scalar is host-sync's case); whether memory was
pageable is not recorded"""
sources = ["https://docs.pytorch.org/docs/stable/notes/cuda.html (use pinned memory buffers)"]
[params]
min_size_bytes = { default = 65536, doc = "smaller copies are scalars and sizes, whose cost is the synchronise; a guess, to be fitted" }
min_share_ratio = { default = 0.02, doc = "of the step; pinning is cheap, so little is worth it; a guess, to be fitted" }
warning_share_ratio = { default = 0.05, doc = "of the step, from which it is a warning, as for other waits; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, copy_ns FROM mean_steps
),
pageable AS (
  SELECT
    c.rank,
    c.direction,
    COUNT(*) AS calls,
    SUM(c.exposed_ns) AS exposed_ns,
    SUM(c.host_blocked_ns) AS blocked_ns,
    SUM(c.size_bytes) AS size_bytes,
    SUM(c.size_bytes) / NULLIF(SUM(c.dur_ns), 0) * 1e9 AS rate_bytes_per_s,
    MODE(c.op) AS op,
    MODE(c.source) AS source
  FROM copies AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.pageable AND c.direction IN ('h2d', 'd2h') AND COALESCE(c.size_bytes > $min_size_bytes, TRUE)
  GROUP BY c.rank, c.direction
),
worst AS (
  SELECT
    pageable.*,
    scope,
    spans_count,
    LEAST(exposed_ns // spans_count, copy_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM pageable JOIN job USING (rank)
  QUALIFY ROW_NUMBER() OVER (PARTITION BY direction ORDER BY lost_ns DESC, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  rank,
  [rank] AS ranks,
  direction,
  calls / spans_count AS calls_count,
  size_bytes // spans_count AS size_bytes,
  rate_bytes_per_s,
  blocked_ns // spans_count AS blocked_ns,
  op,
  source,
  CASE WHEN lost_ns > $warning_share_ratio * step_ns THEN 'warning' ELSE 'info' END AS severity
FROM worst
WHERE lost_ns > $min_share_ratio * step_ns
