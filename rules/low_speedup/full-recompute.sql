/*
title = "The job's settings recompute all activations"
severity = "info"
needs = ["settings"]
summary = "full recomputation by the settings ({source}): the forward pass runs twice, by its law {share_ratio} of the computing time; not measured"
why = """
With full activation checkpointing every layer's forward runs again in the backward pass. A backward pass takes about twice
a forward, so a quarter of all computing is repeated work. It buys memory; whether that is needed is not known here."""
fix = """
If memory is free at the peak, recompute less: Megatron-LM --recompute-granularity selective, or --recompute-method block
with fewer --recompute-num-layers; torchtitan activation_checkpoint.mode = "selective"; DeepSpeed / DDP: checkpoint fewer
blocks. Model FLOPs per second do not count repeated work, so hardware may be as busy as in a job without it."""
quiet_when = "recomputation is selective, off, or not in the settings; `recompute-overhead` measures it in traces"
sources = [
  "full recompute +30 to +40 % of forward and backward: https://arxiv.org/abs/2205.05198 table 4",
]
[params]
forward_ratio = { default = 0.3333, doc = "of forward and backward together: backward is twice forward, https://arxiv.org/abs/2205.05198 section 4" }
*/
SELECT
  0 AS lost_ns,
  $forward_ratio / (1 + $forward_ratio) AS share_ratio,
  regexp_extract(ANY_VALUE(source), '[^/\\]*$') AS source,
  0.6 AS confidence_ratio
FROM settings
WHERE key = 'train.recompute'
HAVING COUNT(*) > 0 AND BOOL_AND(TRIM(value, '"') = 'full')
