/*
title = "Collectives move their bytes far slower than their links can"
severity = "warning"
needs = ["link_expectations", "collectives", "mean_steps", "spans"]
needs_values = ["link_expectations.of_expected_ratio"]
summary = "{op} of {size_bytes} in group {group} ({ranks_count} ranks, {link}) reaches {busbw_bytes_per_s} of {expected_busbw_bytes_per_s} bus bandwidth, without waiting: {lost_ns} {scope} ({share_ratio})"
why = """
Time after the last rank arrived is transfer alone. If it is a multiple of what NCCL needs on healthy links of this kind,
the path is at fault: a link, a transport or a setting, not a rank."""
fix = """
Run nccl-tests on the same nodes with the same size: if it is slow, too, look at the path (NCCL_DEBUG=INFO: transport,
GPU-direct, channels; nvidia-smi nvlink -s, nvidia-smi topo -m, ibstat; a forced NCCL_ALGO, NCCL_PROTO or NCCL_P2P_DISABLE).
If it is fast there (or torch.distributed alone is, on the same tensors), compute that runs beside it takes memory bandwidth and multiprocessors: compare calls that run alone."""
quiet_when = """
calls are not matched across ranks (waiting would be inside), the GPU or the link is unknown, the message is too small to
fill a link, or the bandwidth is above the threshold"""
collect = "traces of all ranks, [cluster] gpus_per_node and (across nodes) inter_bytes_per_s in job.toml"
sources = [
  "bus bandwidth and its factors: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
  "measured bus bandwidth per GPU: https://github.com/stas00/ml-engineering (network)",
]
[params]
min_slowdown_ratio = { default = 2.0, doc = "expected over measured: formulas are within 20 % of measured sweeps, and compute beside a collective slows it by up to half" }
min_size_bytes = { default = 1048576, doc = "smaller messages are latency: a guess, to be fitted" }
min_share_ratio = { default = 0.02, doc = "of the step, for time above the expectation; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
slow AS (
  SELECT *, "group"::VARCHAR AS name
  FROM link_expectations
  WHERE of_expected_ratio * $min_slowdown_ratio < 1 AND size_bytes > $min_size_bytes
),
traffic AS (
  SELECT
    c.rank,
    slow.name,
    slow.op,
    slow.size_bytes,
    ANY_VALUE(slow.dim) AS dim,
    ANY_VALUE(slow.link) AS link,
    ANY_VALUE(slow.ranks_count) AS ranks_count,
    ANY_VALUE(slow.busbw_bytes_per_s) AS busbw_bytes_per_s,
    ANY_VALUE(slow.expected_busbw_bytes_per_s) AS expected_busbw_bytes_per_s,
    ANY_VALUE(slow.source) AS source,
    -- What healthy links would still take is no loss.
    SUM(LEAST(c.exposed_ns - c.exposed_wait_ns, GREATEST(c.transfer_ns - slow.expected_ns, 0))) AS exposed_ns
  FROM collectives AS c
  SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  JOIN slow ON slow.op = c.op AND slow.size_bytes = c.size_bytes AND slow.name IS NOT DISTINCT FROM c."group"::VARCHAR
  WHERE c.transfer_ns IS NOT NULL
  GROUP BY c.rank, slow.name, slow.op, slow.size_bytes
),
worst AS (
  SELECT
    traffic.*,
    job.scope,
    LEAST(traffic.exposed_ns // job.spans_count, job.comm_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM traffic JOIN job USING (rank)
  QUALIFY ROW_NUMBER() OVER (PARTITION BY name, op, size_bytes ORDER BY lost_ns, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  lost_ns / step_ns AS share_ratio,
  scope,
  COALESCE(name, 'unnamed') AS "group",
  dim,
  op,
  size_bytes,
  ranks_count,
  link,
  busbw_bytes_per_s,
  expected_busbw_bytes_per_s,
  source
FROM worst
WHERE lost_ns > $min_share_ratio * step_ns
