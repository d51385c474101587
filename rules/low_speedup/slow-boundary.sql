/*
title = "One group is much slower than its equals"
severity = "warning"
needs = ["boundaries"]
needs_values = ["boundaries.equals_count"]
summary = "{what}, {equals_count} equals {usual}: {more_ns} {scope} ({share_ratio}), without any waiting{job_gain}"
why = """
Groups of one dimension, and neighbouring pipeline stages, do the same work over links of the same kind. The one that transfers much slower than the others
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
SELECT
  COALESCE(gain_ns, more_ns) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  more_ns,
  step_ns,
  more_ns / step_ns AS share_ratio,
  scope,
  "group",
  dim,
  op,
  size_bytes,
  busbw_bytes_per_s,
  usual_busbw_bytes_per_s,
  own_ns,
  usual_ns,
  slowdown_ratio,
  stage,
  equals_count,
  CASE WHEN evidence = 'pipeline' THEN "group" || ' need ' || duration(own_ns) || ' for a transfer'
       ELSE 'group ' || "group" || ' moves ' || op || ' of ' || ROUND(size_bytes / 1048576, 2) || ' MiB at '
         || ROUND(busbw_bytes_per_s / 1e9, 1) || ' GB/s' END AS what,
  CASE WHEN evidence = 'pipeline' THEN duration(usual_ns)
       ELSE 'at ' || ROUND(usual_busbw_bytes_per_s / 1e9, 1) || ' GB/s' END AS usual,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || duration(gain_ns) || ' if it is like them' ELSE '' END AS job_gain,
  ranks
FROM boundaries
WHERE LEAST(more_ns, COALESCE(gain_ns, more_ns)) > $min_share_ratio * step_ns
  AND slowdown_ratio > $min_slowdown_ratio
