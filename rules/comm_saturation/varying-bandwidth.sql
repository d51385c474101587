/*
title = "The same message takes several times as long now and then"
severity = "warning"
needs = ["spans", "collectives", "groups"]
needs_values = ["collectives.size_bytes"]
decides = false
summary = "{slow_count} of {calls_count} {op} calls of {size_bytes} over {members} take {times} times the usual {typical_ns}: bandwidth is {p5_busbw_bytes_per_s} (5th percentile) against {p50_busbw_bytes_per_s} (median); {cause}"
why = """
Equal messages of one group should take equal time. Two speeds for one size, most calls fast and a few several times slower,
are what a shared or congested network does: adaptive routing off, no lossless class (PFC, ECN) on RoCE, traffic of other jobs,
retransmissions that no counter shows. NVLink inside a node does not behave so."""
fix = """
Repeat the size with nccl-tests on the same nodes (all_reduce_perf -b SIZE -e SIZE -n 1000, out-of-place times one by one) while
the job is stopped: still two speeds, then look at the fabric: switch counters (PFC pauses, ECN marks, discards), adaptive
routing (NCCL_IB_ADAPTIVE_ROUTING=1 on InfiniBand), lossless settings and traffic class on RoCE (NCCL_IB_TC, NCCL_IB_SL), other
jobs on the same links, NCCL version. No longer two speeds: some rank came late; record all ranks over the same steps.
Megatron-LM, DeepSpeed, FSDP2 and DDP need no change."""
quiet_when = """
the group is inside one node; calls are few, or small enough that latency rules; more than half are slow, or times spread
without a gap (then it is a slow link or uneven ranks); waiting for a late rank explains it (traces of all ranks)"""
collect = "traces of all ranks over the same steps"
sources = [
  "same message, an order of magnitude apart: https://github.com/NVIDIA/nccl/issues/306",
  "https://github.com/NVIDIA/nccl/issues/378 and https://github.com/NVIDIA/nccl/issues/883",
  "https://github.com/deepseek-ai/DeepEP/issues/254",
]
[params]
min_calls_count = { default = 9, doc = "of one size, above which two speeds can be told from a few odd calls; a guess, to be fitted" }
min_slow_count = { default = 1, doc = "slow calls, the first of a group left out (it may set up connections), above which they are not one accident" }
min_slowdown_ratio = { default = 3.0, doc = "of the median, above which a call is slow; jitter of a healthy fabric stays below 2; a guess, to be fitted" }
min_size_bytes = { default = 524288, doc = "up to here latency and scheduling rule, not bandwidth" }
min_share_ratio = { default = 0.01, doc = "of the step that the slow calls cost; a guess, to be fitted" }
*/
WITH job AS (
  SELECT ANY_VALUE(scope) AS scope, MAX(mean_ns) AS step_ns, MAX(spans_count) AS spans FROM spans
),
called AS (  -- a matched call once, its waiting left out; else once per rank
  SELECT
    c."group",
    c.op,
    c.size_bytes,
    CASE WHEN c.match IS NULL THEN c.rank END AS teller,
    COALESCE(c.match, -1 - c.event_id) AS call,
    MIN(c.ts_ns) AS ts_ns,
    CAST(MEDIAN(COALESCE(c.transfer_ns, c.dur_ns)) AS BIGINT) AS took_ns,
    MAX(c.exposed_ns - COALESCE(c.exposed_wait_ns, 0)) AS exposed_ns,
    MEDIAN(c.busbw_bytes_per_s) AS busbw_bytes_per_s,
    BOOL_AND(c.transfer_ns IS NOT NULL) AS measured,
    ANY_VALUE(c.group_size) AS members_count
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.size_bytes > $min_size_bytes AND c.op <> 'p2p'
  GROUP BY ALL
),
judged AS (
  SELECT
    *,
    MEDIAN(took_ns) OVER kind AS typical_ns,
    ROW_NUMBER() OVER (PARTITION BY teller, "group" ORDER BY ts_ns) AS nth
  FROM called
  WINDOW kind AS (PARTITION BY teller, "group", op, size_bytes)
),
varying AS (
  SELECT
    teller,
    "group",
    op,
    size_bytes,
    ANY_VALUE(members_count) AS members_count,
    BOOL_AND(measured) AS measured,
    COUNT(*) AS calls_count,
    COUNT(*) FILTER (took_ns > $min_slowdown_ratio * typical_ns) AS slow_count,
    COUNT(*) FILTER (took_ns > $min_slowdown_ratio * typical_ns AND nth > 1) AS later_count,
    COUNT(*) FILTER (took_ns > 1.5 * typical_ns AND took_ns <= $min_slowdown_ratio * typical_ns) AS between_count,
    CAST(ANY_VALUE(typical_ns) AS BIGINT) AS typical_ns,
    MEDIAN(took_ns / typical_ns) FILTER (took_ns > $min_slowdown_ratio * typical_ns) AS slowdown_ratio,
    QUANTILE_CONT(busbw_bytes_per_s, 0.05) AS p5_busbw_bytes_per_s,
    MEDIAN(busbw_bytes_per_s) AS p50_busbw_bytes_per_s,
    CAST(SUM(LEAST(exposed_ns, took_ns - typical_ns)) FILTER (took_ns > $min_slowdown_ratio * typical_ns) AS BIGINT) AS slow_ns
  FROM judged
  GROUP BY teller, "group", op, size_bytes
),
spanned AS (
  SELECT "group", MAX(node_count) AS node_count FROM groups GROUP BY "group"
),
worst AS (
  SELECT v.*, n.node_count, slow_ns // job.spans AS lost_ns, job.step_ns, job.scope
  FROM varying AS v CROSS JOIN job LEFT JOIN spanned AS n ON n."group" = CAST(v."group" AS VARCHAR)
  WHERE calls_count > $min_calls_count
    AND later_count > $min_slow_count
    AND between_count <= slow_count
    AND COALESCE(n.node_count, 2) > 1
    AND typical_ns > 0
  -- Ranks that tell the same without being matched: the one that waits least.
  QUALIFY ROW_NUMBER() OVER (PARTITION BY v."group", op, size_bytes ORDER BY slow_ns, teller) = 1
)
SELECT
  lost_ns,
  step_ns,
  lost_ns / step_ns AS share_ratio,
  op,
  size_bytes,
  "group",
  CASE
    WHEN node_count IS NOT NULL THEN node_count || ' nodes'
    ELSE COALESCE(members_count || ' ranks', 'a group') || ' of unknown nodes'
  END AS members,
  calls_count,
  slow_count,
  slowdown_ratio,
  CAST(ROUND(slowdown_ratio, 1) AS VARCHAR) AS times,
  typical_ns,
  p5_busbw_bytes_per_s,
  p50_busbw_bytes_per_s,
  measured,
  CASE
    WHEN measured THEN 'waiting for late ranks is left out: the network varies, congestion is suspected'
    ELSE 'the network varies (congestion is suspected), unless other ranks came late, which one rank does not show'
  END AS cause,
  CASE WHEN measured THEN 'warning' ELSE 'info' END AS severity,
  CASE WHEN measured AND node_count > 1 THEN 0.8 WHEN measured THEN 0.7 ELSE 0.4 END AS confidence_ratio
FROM worst
WHERE lost_ns > $min_share_ratio * step_ns
ORDER BY lost_ns DESC, "group", op, size_bytes
