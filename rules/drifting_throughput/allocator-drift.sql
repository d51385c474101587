/*
title = "The allocator takes more and more of the step"
severity = "warning"
needs = ["slowdowns"]
summary = "{shown_ranks}: allocation takes {part_grown_ns} longer from step {from_step}, {explained_ratio} of what the job's step grew"
why = """
When the cache has no fitting block, PyTorch frees everything cached and asks the driver again: each retry stops the device for
milliseconds, on one rank while the others wait. It becomes worse as memory fills and fragments."""
fix = """
Lower the peak (micro-batch, recompute), make sizes repeat (pad, bucket), PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where nothing
shares CUDA memory by IPC, or torch.cuda.empty_cache() at the same step on all ranks (DeepSpeed, FSDP2, DDP). Watch num_alloc_retries."""
quiet_when = "allocation time does not grow with the step"
collect = "step records of all ranks over many steps (the live hook's records)"
sources = [
  "https://github.com/pytorch/pytorch/issues/103737",
  "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
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
  CASE WHEN ranks IS NULL THEN 'all ranks' ELSE 'rank ' || ARRAY_TO_STRING(ranks, ', ') END AS shown_ranks
FROM slowdowns
WHERE cause::VARCHAR = 'fragmentation'
  AND part_grown_ns > $min_grown_ratio * usual_ns AND explained_ratio > $min_explained_ratio
