/*
title = "One group is much slower than its equals"
severity = "warning"
needs = ["link_expectations", "collectives", "spans", "groups", "rank_what_if"]
needs_values = ["link_expectations.busbw_bytes_per_s"]
summary = "group {group} moves {op} of {size_bytes} at {busbw_bytes_per_s}, its {equals_count} equals at {usual_busbw_bytes_per_s}: {more_ns} {scope} ({share_ratio}), without any waiting{job_gain}"
why = """
Groups of one dimension do the same work over links of the same kind. The one that transfers much slower than the others
crosses a link, a switch or a host that is not like theirs."""
fix = """
Find what the ranks of this group share and the others do not: a NIC or cable (ibstat, perfquery, nvidia-smi nvlink -e), a
switch, a host without GPU-direct or with another PCIe layout. Swap one node (torchrun --node-rank, a new host list) and measure again, or run nccl-tests (or a loop of
torch.distributed.all_reduce) on pairs of nodes: a node that is in every slow pair is the cause."""
quiet_when = "fewer than three equal groups, bandwidths alike, traffic hidden; a late rank is waiting, not transfer"
collect = "traces of all ranks over the same steps"
sources = [
  "one node in every slow pair: https://github.com/NVIDIA/nccl-tests/issues/106",
]
[params]
min_slowdown_ratio = { default = 1.5, doc = "median of the equals over this group's bandwidth; a guess, to be fitted" }
min_share_ratio = { default = 0.02, doc = "of the step; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, ANY_VALUE(scope) AS scope, ANY_VALUE(mean_ns) AS step_ns, COUNT(*) AS spans, SUM(comm_ns) // COUNT(*) AS comm_ns
  FROM spans
  GROUP BY rank
),
compared AS (
  SELECT
    a."group"::VARCHAR AS name,
    a.op::VARCHAR AS op,
    a.size_bytes,
    ANY_VALUE(a.dim)::VARCHAR AS dim,
    ANY_VALUE(a.busbw_bytes_per_s) AS busbw_bytes_per_s,
    MEDIAN(b.busbw_bytes_per_s) AS usual_busbw_bytes_per_s,
    COUNT(*) AS equals_count
  FROM link_expectations AS a JOIN link_expectations AS b
    ON b.op = a.op AND b.size_bytes = a.size_bytes AND b.dim = a.dim AND b.ranks_count = a.ranks_count
    AND b."group" <> a."group" AND b.node_count IS NOT DISTINCT FROM a.node_count
  GROUP BY a."group", a.op, a.size_bytes
  HAVING COUNT(*) >= 2
),
slow AS (
  SELECT * FROM compared WHERE usual_busbw_bytes_per_s > $min_slowdown_ratio * busbw_bytes_per_s
),
traffic AS (
  SELECT
    c.rank,
    slow.*,
    SUM(CAST((c.exposed_ns - c.exposed_wait_ns) * (1 - slow.busbw_bytes_per_s / slow.usual_busbw_bytes_per_s) AS BIGINT)) AS exposed_ns
  FROM collectives AS c
  SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  JOIN slow ON slow.op = c.op AND slow.size_bytes = c.size_bytes AND slow.name = c."group"::VARCHAR
  WHERE c.transfer_ns IS NOT NULL
  GROUP BY ALL
),
worst AS (
  SELECT
    traffic.*,
    job.scope,
    LEAST(traffic.exposed_ns // job.spans, job.comm_ns) AS more_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM traffic JOIN job USING (rank)
  QUALIFY ROW_NUMBER() OVER (PARTITION BY name, op, size_bytes ORDER BY more_ns, rank) = 1
),
gain AS (  -- what the job gains if a group is as fast as its equals
  SELECT "group"::VARCHAR AS name, ANY_VALUE(gain_ns) AS gain_ns FROM rank_what_if WHERE fixed = 'group' GROUP BY ALL
)
SELECT
  GREATEST(LEAST(COALESCE(gain_ns, more_ns), step_ns), 0) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  more_ns,
  step_ns,
  more_ns / step_ns AS share_ratio,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || ROUND(gain_ns / 1e6, 2) || ' ms if it is like them' ELSE '' END AS job_gain,
  scope,
  name AS "group",
  dim,
  op,
  size_bytes,
  busbw_bytes_per_s,
  usual_busbw_bytes_per_s,
  equals_count,
  (SELECT ANY_VALUE(g.ranks) FROM groups AS g WHERE g."group" = worst.name) AS ranks
FROM worst LEFT JOIN gain USING (name)
WHERE LEAST(more_ns, COALESCE(gain_ns, more_ns)) > $min_share_ratio * step_ns
