/*
title = "Exchanges with experts carry less than the tokens need"
severity = "warning"
needs = ["dispatch_bytes", "exchanges"]
summary = "{what}"
why = """
In a dropless job every token goes to its experts and comes back. Bytes that are missing are tokens that never reached an expert, or never returned:
a dispatch without its combine, a mask that is too strict, ranks that disagree on the routing."""
fix = """
Compare the routing on all ranks of an expert- and tensor-parallel group: they must see the same tokens and random state (Megatron-LM
--expert-tensor-parallel-size 1 and --sequence-parallel, --moe-router-dtype fp32). Check that dispatch and combine use one group and one permutation
(a token dispatcher of your own; torchtitan token_dispatcher), and that padding is removed only once."""
quiet_when = """
dispatch and combine carry the same, and as much as a dropless job must, or a half, a third, ... of it (a micro-batch sent in chunks); tokens may be
dropped before they are sent"""
collect = "a job.toml with [model] hidden, topk and [train] micro_batch, routing, and traces with collective metadata"
sources = [
  "what an exchange carries: https://arxiv.org/abs/2412.19437 (section 3.2)",
  "inconsistent routing between tensor ranks: https://github.com/NVIDIA/Megatron-LM/issues/1258",
]
[params]
max_expected_ratio = { default = 0.8, doc = "measured over expected; tolerance of the byte check (planner formulas)" }
min_return_ratio = { default = 0.05, doc = "difference of bytes sent out and brought back, over those sent; the same tokens return; a choice" }
*/
WITH ways AS (
  SELECT
    MAX(measured_bytes) FILTER (way = 'to') AS to_bytes,
    MAX(measured_bytes) FILTER (way = 'back') AS back_bytes,
    MAX(recorded_width) FILTER (way = 'to') AS to_width,
    MAX(recorded_width) FILTER (way = 'back') AS back_width
  FROM dispatch_bytes
),
rows_ AS (  -- the same tokens return, maybe wider
  SELECT *, to_bytes / to_width AS sent_elements, back_bytes / back_width AS returned_elements
  FROM ways
  WHERE EXISTS (FROM dispatch_bytes WHERE unexplained_ratio BETWEEN $max_expected_ratio AND 2 - $max_expected_ratio)
)
SELECT
  0 AS lost_ns,
  GREATEST(COALESCE(CAST(expected_bytes - measured_bytes AS BIGINT), 0), 0) AS lost_bytes,
  unexplained_ratio AS measured_ratio,
  'an exchange ' || CASE WHEN way = 'to' THEN 'to the experts' ELSE 'back' END || ' carries ' || ROUND(measured_bytes / 1048576, 2) || ' MiB per rank, '
    || ROUND(100 * unexplained_ratio, 1) || ' % of what its tokens need' AS what
FROM dispatch_bytes
WHERE unexplained_ratio < $max_expected_ratio AND kept_ratio IS NOT NULL
  AND ABS(1 / unexplained_ratio - ROUND(1 / unexplained_ratio)) >= 0.03  -- a half, a third: chunks of a micro-batch
UNION ALL BY NAME
SELECT
  0 AS lost_ns,
  COALESCE(CAST(ABS(to_bytes - back_bytes) AS BIGINT), 0) AS lost_bytes,
  returned_elements / sent_elements AS measured_ratio,
  'tokens brought back are ' || ROUND(100 * returned_elements / sent_elements, 1) || ' % of those sent to the experts' AS what
FROM rows_
WHERE ABS(returned_elements - sent_elements) > $min_return_ratio * sent_elements
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'numbers that the byte check needs are not known: ' || missing AS undecided
FROM (SELECT ANY_VALUE(missing) AS missing FROM dispatch_bytes WHERE missing <> '')
WHERE missing IS NOT NULL
