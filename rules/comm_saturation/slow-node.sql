/*
title = "Every pair with one host is slow"
severity = "warning"
needs = ["pairs"]
needs_values = ["pairs.busbw_bytes_per_s"]
summary = "{host}: its fastest pair reaches {best_bytes_per_s}, pairs without it {others_bytes_per_s} ({speed_ratio}){switches}"
why = """
Collectives over all hosts run at the pace of the slowest link. Where all pairs with one host are slow and pairs among the
others are fast, the host is the cause (card, cable, PCIe, BIOS), not the switches between."""
fix = """
Take the host out, then compare it with a fast one: ibstat and mlxlink (width, speed, errors), nvidia-smi topo -m, PCIe link width
(lspci -vv), ACS, NUMA and power settings, all cards present (NCCL_IB_HCA). Run nccl-tests pairwise again before it goes back. Megatron-LM,
FSDP2 and DeepSpeed need no change; a launcher's exclude list (srun --exclude, torch.distributed.run host list) does."""
quiet_when = "no host is in all slow pairs, or fewer than two pairs hold it"
collect = "a table of bandwidth between pairs of hosts (CSV: a,b,busbw_gbs)"
sources = ["https://github.com/NVIDIA/nccl-tests/issues/106"]
[params]
max_speed_ratio = { default = 0.8, doc = "of the slowest pair without the host: public reports had 0.56; a guess, to be fitted" }
*/
WITH ends AS (
  SELECT "from" AS host, busbw_bytes_per_s AS speed FROM pairs
  UNION ALL
  SELECT "to", busbw_bytes_per_s FROM pairs WHERE "to" <> "from"
),
hosts AS (
  SELECT host, MAX(speed) AS best, COUNT(*) AS pairs_count
  FROM ends
  WHERE host IS NOT NULL
  GROUP BY host
  HAVING COUNT(*) > 1
),
compared AS (
  SELECT
    h.*,
    MEDIAN(p.busbw_bytes_per_s) AS others,
    MIN(p.busbw_bytes_per_s) FILTER (WHERE NOT p.same_switch) AS crossing
  FROM hosts AS h JOIN pairs AS p ON p."from" <> h.host AND p."to" <> h.host
  GROUP BY h.host, h.best, h.pairs_count
)
SELECT
  0 AS lost_ns,
  host,
  [host] AS hosts,
  best AS best_bytes_per_s,
  others AS others_bytes_per_s,
  best / others AS speed_ratio,
  pairs_count,
  CASE WHEN crossing > best THEN '; crossing switches does not explain it: pairs that cross without it are fast' ELSE '' END AS switches,
  CASE WHEN crossing > best THEN 0.9 ELSE 0.75 END AS confidence_ratio
FROM compared
WHERE best < $max_speed_ratio * others
