/*
title = "Batches of unequal work: the longest sequences set the pace"
severity = "warning"
needs = ["uneven_work"]
needs_values = ["uneven_work.variation_ratio"]
summary = "work differs from batch to batch by {variation_ratio} and {goes_with}: {waits_ns} {scope} ({share_ratio}) goes to waiting for the longest{job_gain}"
why = """
Sequences differ in length, so ranks and micro-batches get different numbers of tokens; attention makes long ones dearer
still. All ranks wait for the longest batch of each step, all stages for the longest micro-batch. No hardware is at fault:
another rank is late each time."""
fix = """
Balance tokens, not samples: pack sequences to one length with a block mask (Megatron-LM --reset-attention-mask with packed
data, torchtitan and TRL packing=True, transformers DataCollatorWithFlattening), batch by length (group_by_length), or give
each rank and micro-batch samples of equal total cost (length plus length squared) in every global batch, longest first to
the least loaded. Context parallelism splits single long sequences. Gradient accumulation without synchronisation (DDP
no_sync) averages over micro-batches."""
quiet_when = """
batches are alike within a tenth; work does not follow tokens, nor backward follow forward on the same worker; one rank is
slow every time (late-rank)"""
collect = "records of all ranks with tokens and compute time of every step, or a pipeline timeline"
sources = [
  "sequence-length imbalance in a fifth of the jobs, forward-backward correlation of 0.9: https://arxiv.org/abs/2505.05713 section 5.3",
  "unbalanced tokens per rank: https://github.com/huggingface/transformers/pull/47340",
]
[params]
min_share_ratio = { default = 0.05, doc = "of the step; a guess, to be fitted" }
min_variation_ratio = { default = 0.1, doc = "coefficient of variation of a worker's work; from the few public jobs" }
min_correlation_ratio = { default = 0.9, doc = "of work with tokens, or of backward with forward: the published threshold" }
*/
SELECT
  COALESCE(gain_ns, waits_ns) AS lost_ns,
  CASE WHEN gain_ns IS NULL THEN 'bound' ELSE 'simulated' END AS lost_kind,
  waits_ns,
  step_ns,
  waits_ns / step_ns AS share_ratio,
  scope,
  variation_ratio,
  token_correlation_ratio,
  backward_correlation_ratio,
  rank,
  blamed_ratio,
  ranks_count,
  ranks,
  judged_count,
  CASE WHEN evidence = 'pipeline'
    THEN 'the backward of a micro-batch is long where its forward is (correlation ' || ROUND(backward_correlation_ratio, 2) || ')'
    ELSE 'follows the tokens (correlation ' || ROUND(token_correlation_ratio, 2) || ')' END AS goes_with,
  CASE WHEN gain_ns IS NOT NULL THEN '; the job gains ' || duration(gain_ns) || ' if all are alike' ELSE '' END AS job_gain
FROM uneven_work
WHERE evidence <> 'calls'
  AND waits_ns > $min_share_ratio * step_ns
  AND variation_ratio > $min_variation_ratio
  AND COALESCE(backward_correlation_ratio, token_correlation_ratio) > $min_correlation_ratio
