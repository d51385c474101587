/*
title = "Input takes longer and longer"
severity = "warning"
needs = ["slowdowns"]
summary = "{shown_ranks}: waiting for data takes {part_grown_ns} longer than at first{per_step}, {explained_ratio} of what the job's step grew; compute and communication did not grow with it"
why = """
The data pipeline slows while the GPUs do not: caches that are evicted, shards on slower storage, a growing index or buffer, workers that
swap or leak."""
fix = """
Watch the workers' memory and the page cache; restart workers per epoch (DataLoader persistent_workers=False as a test), shuffle within
shards, raise num_workers and prefetch_factor, keep the next shards local. Streaming sets: bound the cache (litData, mosaicml-streaming
cache_limit). Megatron-LM: build index maps ahead; check --num-workers."""
quiet_when = "waiting for data does not grow, or by less than a quarter of what the step grew"
collect = "step records of all ranks over many steps (the live hook's records)"
sources = [
  "https://github.com/Lightning-AI/litData/issues/138",
  "https://github.com/pytorch/pytorch/issues/45273",
]
[params]
min_grown_ratio = { default = 0.01, doc = "growth of the part over the step before it; as for the job's step; a choice" }
min_explained_ratio = { default = 0.25, doc = "of the step's growth that the part must explain; below, it is no main cause; a guess" }
*/
SELECT
  COALESCE(lost_ns, 0) AS lost_ns,
  ranks,
  part,
  part_grown_ns,
  usual_ns,
  grown_ns,
  explained_ratio,
  from_step,
  until_step,
  shape,
  slope_ns,
  sign,
  sign_early,
  sign_late,
  collect,
  COALESCE(confidence_ratio, 0.5) AS confidence_ratio,
  CASE WHEN ranks IS NULL THEN 'all ranks' ELSE 'rank ' || ARRAY_TO_STRING(ranks, ', ') END AS shown_ranks,
  slope_ns / 1e6 AS slope_ms,
  CASE WHEN slope_ns IS NULL THEN '' ELSE ' (+' || duration(slope_ns) || ' a step)' END AS per_step
FROM slowdowns
WHERE cause::VARCHAR = 'input'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
