/*
title = "The job is set up differently from the one it is held against"
severity = "info"
needs = ["settings"]
summary = "against the reference: {differences}; compare speeds only after these"
why = """
Another pipeline depth, recomputation or data-parallel size changes what a GPU can reach, without anything being wrong with
hardware or network. Differences of settings come first when two jobs differ in speed."""
fix = """
Run the reference's settings on this cluster, or these settings there, before looking for slow hardware: change one at a
time (Megatron-LM --pipeline-model-parallel-size, --recompute-granularity, --micro-batch-size; torchtitan [parallelism];
DeepSpeed's configuration). The findings about the bubble and recomputation say how much of the difference they explain."""
quiet_when = "no reference is described, or it has the same settings"
sources = [
  "settings explained a lower throughput: https://github.com/NVIDIA/Megatron-LM/issues/1031",
]
*/
WITH own AS (
  SELECT key, ANY_VALUE(value) AS value FROM settings
  WHERE NOT starts_with(key, 'reference.') GROUP BY key HAVING COUNT(DISTINCT value) = 1
),
other AS (
  SELECT substr(key, 11) AS key, ANY_VALUE(value) AS value FROM settings
  WHERE starts_with(key, 'reference.') GROUP BY key HAVING COUNT(DISTINCT value) = 1
),
different AS (
  SELECT key, own.value AS ours, other.value AS theirs FROM own JOIN other USING (key)
  WHERE own.value <> other.value AND regexp_matches(key, '^(layout|train|pipeline|model|cluster)\.')
)
SELECT
  0 AS lost_ns,
  string_agg(replace(key, 'layout.', '') || ' ' || ours || ' against ' || theirs, ', ' ORDER BY key) AS differences,
  COUNT(*) AS settings_count
FROM different
HAVING COUNT(*) > 0
