/*
title = "Moving tokens to experts and back takes a large share of the step"
severity = "warning"
needs = ["exchanges", "mean_steps", "spans"]
summary = "{lost_ns} of {step_ns} {scope} ({share_ratio}) is dispatch and combine that no compute hides; {counted}"
why = """
Every layer sends its tokens away and takes them back, forward and backward, and its experts cannot begin before. This time grows with top-k and
width, not with compute, and with every node that a group crosses."""
fix = """
First keep the group inside the fast domain (expert-parallel-crosses-nodes). Then overlap: Megatron-LM --overlap-moe-expert-parallel-comm with
--delay-wgrad-compute, --moe-shared-expert-overlap; interleaved or DualPipe schedules hide it under another micro-batch. Then fewer bytes: 8-bit
dispatch, DeepEP (--moe-token-dispatcher-type flex --moe-enable-deepep), routing limited to few nodes (--moe-router-num-groups,
--moe-router-group-topk). DeepEP maps buffers between processes: leave expandable_segments off with it. torchtitan: expert_parallel_degree within a
node."""
quiet_when = "compute hides it, or it is short; waiting for a busy rank is expert-imbalance. Of several ranks the one that waits least counts."
collect = "traces of all ranks over the same steps"
sources = [
  "all-to-alls take 30 to 40 % of the step when they leave the node: https://github.com/NVIDIA/Megatron-LM (docs, MoE)",
  "hiding 37 % of it won 15 % of the step: https://github.com/NVIDIA-NeMo/Megatron-Bridge (performance guide, MoE overlap)",
  "DeepEP and expandable_segments: https://github.com/pytorch/torchtitan/issues/3865",
]
[params]
min_share_ratio = { default = 0.15, doc = "of the step; half of what public runs lose when it leaves the node (sources); a guess, to be fitted" }
critical_share_ratio = { default = 0.30, doc = "of the step, from which it is critical; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, comm_ns FROM mean_steps
  WHERE compute_ns > 0  -- a benchmark of all-to-alls has nothing to hide under
),
moved AS (
  SELECT
    e.rank,
    SUM(e.exposed_ns - COALESCE(e.exposed_wait_ns, 0)) AS exposed_ns,
    SUM(e.exposed_ns - COALESCE(e.exposed_wait_ns, 0)) FILTER (way = 'to') AS to_ns,
    COUNT(e.wait_ns) = COUNT(*) AS matched
  FROM exchanges AS e SEMI JOIN spans AS s ON s.rank = e.rank AND s.step IS NOT DISTINCT FROM e.step
  GROUP BY e.rank
),
least AS (
  SELECT
    moved.rank,
    moved.matched,
    job.scope,
    LEAST(moved.exposed_ns // job.spans_count, job.comm_ns) AS lost_ns,
    moved.to_ns // job.spans_count AS dispatch_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns,
    (SELECT COUNT(*) FROM moved) AS ranks_count
  FROM moved JOIN job USING (rank)
  QUALIFY ROW_NUMBER() OVER (ORDER BY lost_ns, rank) = 1
)
SELECT
  lost_ns,
  step_ns,
  lost_ns / step_ns AS share_ratio,
  scope,
  dispatch_ns,
  lost_ns - dispatch_ns AS combine_ns,
  CASE
    WHEN matched THEN 'waiting for other ranks is not counted'
    WHEN ranks_count = 1 THEN 'waiting for other ranks is included, as only one rank was seen'
    ELSE 'counted on the rank that waits least; waiting may still be included'
  END AS counted,
  CASE WHEN lost_ns > $critical_share_ratio * step_ns THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN matched THEN 1.0 WHEN ranks_count = 1 THEN 0.5 ELSE 0.7 END AS confidence_ratio,
  [rank] AS ranks
FROM least
WHERE lost_ns > $min_share_ratio * step_ns
