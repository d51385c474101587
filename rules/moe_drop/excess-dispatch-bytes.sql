/*
title = "All-to-alls with experts carry more than the tokens need"
severity = "warning"
needs = ["dispatch_bytes", "expert_balance"]
summary = "an exchange {direction} carries {measured_bytes} per rank where {tokens_count} tokens x {topk} x {hidden} x {element_width} bytes are {assigned_bytes}: {excess_ratio} more; {cause}"
why = """
Bytes of dispatch and combine follow from tokens, top-k, width and element type. What goes beyond is padding to a large capacity, tokens sent to
every rank that shares an expert, or elements wider than meant: the link carries nothing for it."""
fix = """
Padding: a smaller --moe-expert-capacity-factor, or none (dropless, Megatron-LM's default). Replicas: --expert-tensor-parallel-size 1 with more expert
parallelism instead; with tensor parallelism Megatron-LM needs --sequence-parallel, or every tensor rank sends the same tokens. Width: 8-bit dispatch
(DeepEP, --moe-token-dispatcher-type flex), bf16 combine. A dispatcher that sends a token once per rank or node (DeepEP) where top-k is large."""
quiet_when = "what was measured is what the settings explain, up to the tolerance; padding within the usual 1.25; a number is not known"
collect = "a job.toml with [model] hidden, topk, experts and [train] micro_batch, dispatch_dtype, and traces with collective metadata"
sources = [
  "bytes = tokens x top-k x hidden x element, and a tolerance of 20 %: https://arxiv.org/abs/2412.19437 (section 3.2)",
  "expert parallelism 1 to 4 with more memory and half the speed: https://github.com/pytorch/torchtitan/issues/1624",
]
[params]
min_unexplained_ratio = { default = 1.2, doc = "measured over expected; tolerance of the byte check (planner formulas)" }
min_configured_ratio = { default = 1.5, doc = "measured over tokens x top-k where settings explain it: 1.25 of padding and the tolerance" }
*/
WITH judged AS (
  SELECT *, COALESCE(sent_once_ratio, 1) * assigned_bytes AS least_bytes FROM dispatch_bytes WHERE measured_ratio IS NOT NULL
),
time AS (
  SELECT MAX(transfer_ns) AS transfer_ns, MAX(step_ns) AS step_ns FROM expert_balance WHERE source = 'trace'
)
SELECT
  COALESCE(LEAST(time.transfer_ns, time.step_ns) * GREATEST(1 - least_bytes / measured_bytes, 0) / 2, 0) AS lost_ns,
  GREATEST(COALESCE(CAST(measured_bytes - least_bytes AS BIGINT), 0), 0) AS lost_bytes,
  CASE WHEN way = 'to' THEN 'to the experts' ELSE 'back' END AS direction,
  measured_bytes,
  assigned_bytes,
  expected_bytes,
  measured_bytes / least_bytes - 1 AS excess_ratio,
  unexplained_ratio,
  tokens_count,
  topk,
  hidden,
  element_width,
  CASE
    WHEN unexplained_ratio > $min_unexplained_ratio AND recorded_width > $min_unexplained_ratio * element_width
      THEN 'elements are ' || recorded_width || ' bytes wide, not ' || ROUND(element_width, 2)
    WHEN unexplained_ratio > $min_unexplained_ratio AND ABS(unexplained_ratio - ROUND(unexplained_ratio)) < 0.05 * unexplained_ratio
      THEN 'nothing in the settings explains it; each token seems to be sent ' || ROUND(unexplained_ratio) || ' times'
    WHEN unexplained_ratio > $min_unexplained_ratio
      THEN 'the settings explain ' || ROUND(measured_ratio / unexplained_ratio, 2) || ' times, not ' || ROUND(measured_ratio, 2)
    WHEN copies_ratio >= padding_ratio THEN 'each token goes to all ' || copies_ratio || ' ranks that share an expert (expert tensor parallelism)'
    ELSE 'inputs of experts are padded to ' || ROUND(padding_ratio, 2) || ' times the tokens (capacity factor)'
  END AS cause
FROM judged, time
WHERE unexplained_ratio > $min_unexplained_ratio OR measured_bytes > $min_configured_ratio * least_bytes
