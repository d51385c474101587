/*
title = "Tensor-parallel communication outweighs what the thinner shards save"
severity = "warning"
needs = ["mean_steps", "spans", "collectives", "groups", "gemms"]
needs_values = ["spans.dur_ns"]
summary = "{lost_ns} of {step_ns} {scope} ({share_ratio}) is exposed communication of the tensor-parallel group of {group_size} ranks{thin}"
why = """
Each doubling of the tensor-parallel size halves a GPU's matrices, which also run less efficiently, while the bytes per
layer hardly change: its communication sits between dependent layers and is the hardest to hide."""
fix = """
The smallest tensor-parallel size that fits in memory, the freed GPUs to data parallelism (more state per GPU: ZeRO or a
distributed optimizer pays for it). Overlap the rest: Megatron-LM --tp-comm-overlap with --sequence-parallel and
CUDA_DEVICE_MAX_CONNECTIONS=1 (right here before Blackwell, wrong for FSDP); torchtitan parallelism.enable_async_tensor_parallel
with torch.compile. A larger micro-batch makes the matrices thicker and costs activations."""
quiet_when = """
it is hidden or small; the group is known to cross nodes (another fault); no group is known to be tensor-parallel (the
rule does not answer)"""
collect = "a trace whose distributedInfo describes the process groups (PyTorch 2.4 or later, groups made with group_desc)"
sources = [
  "+4 to +16 % from async tensor parallelism: https://github.com/pytorch/torchtitan",
  "-28 % from TP 4 to TP 8 on Llama-70B, 32 x H100: https://github.com/NVIDIA-NeMo/Megatron-Bridge (memory tuning)",
  "smallest t x p that fits: https://arxiv.org/abs/2104.04473 (takeaway 2)",
]
[params]
min_share_ratio = { default = 0.15, doc = "of the step; near the top of what overlap alone has won back (+4 to +16 %); a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a communication benchmark has nothing to hide under
),
traffic AS (
  SELECT
    c.rank,
    c.dim,
    MAX(c.group_size) AS group_size,
    ANY_VALUE(c."group") AS "group",
    COUNT(*) AS calls,
    SUM(LEAST(c.exposed_ns, COALESCE(c.transfer_ns, c.exposed_ns))) AS exposed_ns,
    COUNT(c.wait_ns) > 0 AS matched
  FROM collectives AS c SEMI JOIN spans AS s ON s.rank = c.rank AND s.step IS NOT DISTINCT FROM c.step
  WHERE c.dim IN ('tp', 'other')
  GROUP BY c.rank, c.dim
),
least AS (
  SELECT
    traffic.*,
    scope,
    spans_count,
    LEAST(exposed_ns // spans_count, comm_ns) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM job) AS ranks_count,
    (SELECT MAX(node_count) FROM groups WHERE dim = 'tp') AS node_count,
    (SELECT CAST(MEDIAN(LEAST(m, n, k)) AS BIGINT) FROM gemms WHERE m > 0) AS thinnest_count
  FROM traffic JOIN job USING (rank)
  -- `other` speaks only where no group is known to be tensor-parallel.
  QUALIFY ROW_NUMBER() OVER (ORDER BY dim = 'tp' DESC, lost_ns, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  group_size,
  "group",
  calls / spans_count AS calls_count,
  node_count,
  thinnest_count,
  CASE WHEN thinnest_count IS NULL THEN '' ELSE '; half of the matrix products have a side of at most ' || thinnest_count END AS thin,
  [rank] AS ranks,
  CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END AS confidence_ratio,
  CASE WHEN dim = 'other' THEN 'no process group is known to be tensor-parallel; some are unnamed' END AS undecided
FROM least
WHERE lost_ns > $min_share_ratio * step_ns
  AND COALESCE(node_count, 1) = 1
