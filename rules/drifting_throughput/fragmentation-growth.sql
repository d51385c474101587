/*
title = "Reserved memory grows while live memory does not"
severity = "warning"
needs = ["memory_growth"]
needs_values = ["memory_growth.slope_bytes"]
summary = "rank {rank}: memory reserved but unallocated grows by {slope_bytes} a step, from {first_bytes} to {last_bytes} over {steps_count} steps, while allocated memory grows by {allocated_slope_bytes} a step; {reserved_bytes} are reserved"
why = """
The cache collects blocks that later requests cannot use, because sizes change from step to step (variable lengths, growing
buffers). It takes the room of NCCL and of other processes, and ends in retries and failures although little is in use."""
fix = """
Make sizes repeat: pad or bucket lengths, fix micro-batches. Cap or clean the cache: garbage_collection_threshold:0.8 in
PYTORCH_CUDA_ALLOC_CONF, torch.cuda.set_per_process_memory_fraction, max_split_size_mb; where nothing shares CUDA memory by IPC or
has its own pool (older DeepEP, vLLM), expandable_segments:True. DDP, FSDP and DeepSpeed: torch.cuda.empty_cache() at the same
step on all ranks as a last resort."""
quiet_when = "reserved memory follows what is allocated"
collect = "a log of allocated and reserved GPU memory per step, over many steps"
sources = ["https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"]
[params]
min_grown_ratio = { default = 0.05, doc = "of the reserved memory at the end, over the recording; a guess, to be fitted" }
*/
SELECT
  0 AS lost_ns,
  u.grown_bytes AS lost_bytes,
  u.rank,
  [u.rank] AS ranks,
  u.slope_bytes,
  u.steps_count,
  u.first_bytes,
  u.last_bytes,
  u.reserved_bytes,
  u.used_bytes,
  COALESCE(a.slope_bytes, 0) AS allocated_slope_bytes
FROM memory_growth AS u JOIN memory_growth AS a
  ON a.rank IS NOT DISTINCT FROM u.rank AND a.figure::VARCHAR = 'allocated'
WHERE u.figure::VARCHAR = 'unallocated' AND u.shape::VARCHAR = 'growing'
  AND u.grown_bytes > $min_grown_ratio * COALESCE(u.reserved_bytes, u.last_bytes)
  AND u.slope_bytes > GREATEST(0, COALESCE(a.slope_bytes, 0))
