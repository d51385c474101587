/*
title = "Few experts get most of the tokens"
severity = "warning"
needs = ["expert_balance", "moe_setup", "router_load"]
decides = true
summary = "{what}{grown}{cost}"
why = """
Experts work side by side and a layer ends with the busiest: the others wait in the combine all-to-all, which looks like a slow network. Few
experts also learn most of what is learnt. With a capacity the surplus is dropped, without one it costs time and memory on one rank."""
fix = """
Strengthen balancing: Megatron-LM --moe-router-load-balancing-type aux_loss with --moe-aux-loss-coeff 1e-2 (or seq_aux_loss), or biases without a
loss (--moe-router-enable-expert-bias, --moe-router-score-function sigmoid); torchtitan load_balance_coeff; DeepSpeed: add l_aux to the loss. Keep the
router in float32 (--moe-router-dtype fp32). Forcing an even load (Megatron-LM --moe-router-force-load-balancing) shows what balance would win: for
a measurement only."""
quiet_when = """
the load is near even, or no further from it than chance; the router is forced to balance; a trace shows unequal times, but equal bytes (a slow rank:
late-rank)"""
collect = "router statistics per layer and expert (tokens_per_expert, tokens, top-k and capacity factor of every step: diagnose.live.moe.observe, or JSON lines of your own)"
sources = [
  "real routing against forced balance costs 8 to 20 %: https://github.com/NVIDIA-NeMo/Megatron-Bridge (performance tables)",
  "expert imbalance lengthens each step: https://github.com/verl-project/verl/issues/4103",
]
[params]
min_ep_imbalance_ratio = { default = 1.5, doc = "busiest expert-parallel rank over mean; a guess, to be fitted" }
min_imbalance_ratio = { default = 2.0, doc = "busiest expert over mean where ranks are not known; a guess, to be fitted" }
min_layer_imbalance_ratio = { default = 4.0, doc = "busiest expert over mean in the worst layer; a guess, to be fitted" }
min_gain_ratio = { default = 0.03, doc = "of the step, that an even load would win; below, nobody acts; as for late-rank" }
min_received_imbalance_ratio = { default = 1.1, doc = "bytes of the busiest rank over mean; unequal times with equal bytes are a slow rank" }
critical_gain_ratio = { default = 0.20, doc = "of the step, from which it is critical; as for late-rank; a guess" }
*/
WITH records AS (
  SELECT
    *,
    -- What an even router would show as well does not count.
    imbalance_ratio - (COALESCE(chance_imbalance_ratio, 1) - 1) AS beyond_ratio,
    worst_ratio - (COALESCE(chance_imbalance_ratio, 1) - 1) AS worst_beyond_ratio,
    (SELECT SUM(dropped_count) / NULLIF(SUM(COALESCE(assigned_count, tokens_count)), 0) FROM router_load) AS drop_ratio
  FROM expert_balance WHERE source = 'records' AND forced IS DISTINCT FROM TRUE
),
trace AS (
  SELECT * FROM expert_balance WHERE source = 'trace' AND forced IS DISTINCT FROM TRUE
),
splits AS (
  SELECT * FROM expert_balance WHERE source = 'splits' AND forced IS DISTINCT FROM TRUE
),
uneven AS (
  SELECT
    EXISTS (FROM splits WHERE ep_imbalance_ratio > $min_ep_imbalance_ratio) AND NOT EXISTS (FROM records) AS by_splits,
    EXISTS (
      FROM records
      WHERE beyond_ratio > $min_imbalance_ratio
        OR worst_beyond_ratio > $min_layer_imbalance_ratio
        OR ep_imbalance_ratio - (COALESCE(chance_imbalance_ratio, 1) - 1) > $min_ep_imbalance_ratio
    ) AS by_records,
    EXISTS (
      FROM trace
      WHERE gain_ratio > $min_gain_ratio AND COALESCE(ep_imbalance_ratio, 9) > $min_received_imbalance_ratio
    ) AS by_trace
)
SELECT
  COALESCE(t.gain_ns, 0) AS lost_ns,
  COALESCE(t.gain_ratio, 0) AS gain_ratio,
  r.imbalance_ratio,
  COALESCE(r.ep_imbalance_ratio, t.ep_imbalance_ratio, s.ep_imbalance_ratio) AS ep_imbalance_ratio,
  r.worst_layer,
  r.worst_ratio,
  r.busiest_ep_rank,
  t.busiest_rank,
  t.expert_ns AS balanced_expert_ns,
  t.busiest_expert_ns,
  t.wait_ns,
  t.transfer_ns,
  t.step_ns - t.gain_ns AS balanced_step_ns,
  r.drop_ratio,
  CASE
    WHEN r.imbalance_ratio IS NOT NULL
      THEN 'the busiest expert gets ' || ROUND(r.imbalance_ratio, 2) || ' times an even share'
        || COALESCE(', the busiest expert-parallel rank (' || r.busiest_ep_rank || ') ' || ROUND(r.ep_imbalance_ratio, 2) || ' times', '')
        || CASE WHEN r.worst_layer IS NULL OR r.layers_count = 1 THEN ''
                ELSE '; worst in layer ' || r.worst_layer || ' (' || ROUND(r.worst_ratio, 2) || ')' END
    WHEN t.busiest_expert_ns IS NULL
      THEN 'of the tokens that the recorded ranks send, rank ' || s.busiest_ep_rank || ' of the expert-parallel group gets '
        || ROUND(s.ep_imbalance_ratio, 2) || ' times the mean'
    ELSE 'experts of rank ' || COALESCE(t.busiest_rank::VARCHAR, 'another each time') || ' compute ' || duration(t.busiest_expert_ns)
      || ' of a step where the mean is ' || duration(t.expert_ns)
      || COALESCE(' (it receives ' || ROUND(t.ep_imbalance_ratio, 2) || ' times the mean)', '')
  END AS what,
  CASE WHEN r.late_ratio > 1.2 * r.early_ratio
    THEN ', growing from ' || ROUND(r.early_ratio, 2) || ' to ' || ROUND(r.late_ratio, 2) || ' over the run' ELSE '' END AS grown,
  CASE WHEN t.gain_ns > 0 AND t.gain_ratio > 0
    THEN '; an even load would win ' || duration(t.gain_ns) || ' of a step of ' || duration(t.step_ns)
      || ': the others wait ' || duration(t.wait_ns) || ' for it, moving the tokens takes ' || duration(t.transfer_ns)
    ELSE '; how much time it costs, traces of all ranks would tell' END AS cost,
  CASE WHEN t.gain_ratio > $critical_gain_ratio OR r.drop_ratio > 0.1 THEN 'critical' ELSE 'warning' END AS severity,
  CASE WHEN t.busiest_rank IS NULL THEN NULL ELSE [t.busiest_rank] END AS ranks
FROM uneven LEFT JOIN records AS r ON TRUE LEFT JOIN trace AS t ON uneven.by_trace LEFT JOIN splits AS s ON uneven.by_splits
WHERE uneven.by_records OR uneven.by_trace OR uneven.by_splits
UNION ALL BY NAME
SELECT 0 AS lost_ns,
  COALESCE(
    (SELECT CASE WHEN forced THEN 'the router is forced to an even load, what it would do in training was not recorded'
                 ELSE 'the job has experts (' || evidence || '), but what its routers do was not recorded' END
     FROM moe_setup),
    'no router was recorded') AS undecided
WHERE NOT EXISTS (FROM expert_balance)
