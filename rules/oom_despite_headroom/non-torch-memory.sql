/*
title = "Memory outside PyTorch's allocator leaves too little"
severity = "warning"
needs = ["memory_moments"]
needs_values = ["memory_moments.moment"]
decides = true
summary = "rank {rank}, device {device}: {what} {held_bytes}; PyTorch has {allocated_bytes} allocated and {reserved_bytes} reserved (device: {capacity_bytes}){alike}"
why = """
The CUDA context, NCCL's buffers, libraries and other processes take memory that PyTorch's figures do not show. What the
estimate calls headroom is theirs."""
fix = """
Another process: end it, or give each process its own GPU (CUDA_VISIBLE_DEVICES, torch.cuda.set_device(local_rank) before the
first CUDA call; loaders and forked workers that open device 0 leave a context there). NCCL and context: fewer communicators
and channels (NCCL_MAX_CTAS, NCCL_BUFFSIZE, NCCL_NVLS_ENABLE=0), Megatron-LM and torchtitan: fewer parallel dimensions."""
quiet_when = "other processes and memory outside the allocator are small, or the request would have failed without them"
collect = "the whole out-of-memory message, or nvidia-smi beside torch.cuda.memory_stats()"
sources = ["https://github.com/NVIDIA/nccl/issues/1685", "https://github.com/kaito-project/kaito/issues/976"]
[params]
min_held_ratio = { default = 0.1, doc = "of the device, for a context, NCCL and libraries together; usual is 1 to 5 %; a guess, to be fitted" }
min_named_bytes = { default = 268435456, doc = "smaller neighbours are not named: an idle CUDA context takes about as much; a guess" }
*/
WITH failed AS (
  SELECT *, GREATEST(0, COALESCE(tried_bytes, 0) - COALESCE(recoverable_bytes, 0)) AS short_bytes
  FROM memory_moments
  WHERE moment::VARCHAR = 'oom' AND allocator::VARCHAR IS DISTINCT FROM 'cudaMallocAsync'
),
offenders AS (
  SELECT *, 'neighbour' AS kind, 'another process (' || other_process || ') holds' AS what, other_largest_bytes AS held_bytes, other_bytes AS lost,
    CASE WHEN other_bytes >= short_bytes AND other_bytes > 0.02 * capacity_bytes THEN 'critical' ELSE 'info' END AS level,
    NULL AS advice
  FROM failed WHERE other_bytes >= $min_named_bytes
  UNION ALL BY NAME
  SELECT *, 'own' AS kind, 'this process holds outside the allocator (context, NCCL, libraries)' AS what, non_torch_bytes AS held_bytes,
    non_torch_bytes AS lost, 'warning' AS level, NULL AS advice
  FROM failed WHERE non_torch_bytes > $min_held_ratio * capacity_bytes
  UNION ALL BY NAME
  SELECT *, 'both' AS kind, 'context, libraries and other processes, which the message does not tell apart, hold' AS what,
    unaccounted_bytes AS held_bytes, unaccounted_bytes AS lost, 'warning' AS level, NULL AS advice
  FROM failed WHERE unaccounted_bytes > $min_held_ratio * capacity_bytes AND allocator::VARCHAR = 'pytorch'
  UNION ALL BY NAME
  SELECT *, 'outside' AS kind, upper(allocator::VARCHAR) || ' asks the device itself, past PyTorch''s cache, and failed to get' AS what,
    tried_bytes AS held_bytes, COALESCE(unallocated_bytes, tried_bytes, 0) AS lost, 'critical' AS level,
    'The device was exhausted outside PyTorch''s cache. Cap that cache so that NCCL and libraries find room: '
    || 'torch.cuda.set_per_process_memory_fraction below 1 (of the device, so leave NCCL''s share out), '
    || 'garbage_collection_threshold:0.8 in PYTORCH_CUDA_ALLOC_CONF, or torch.cuda.empty_cache() between phases. '
    || 'Fewer communicators and channels need less: NCCL_MAX_CTAS, NCCL_BUFFSIZE, NCCL_NVLS_ENABLE=0. '
    || 'The model is not too big: compare allocated with reserved.' AS advice
  FROM failed WHERE allocator::VARCHAR IN ('nccl', 'cuda', 'cublas')
)
SELECT
  0 AS lost_ns,
  lost AS lost_bytes,
  level AS severity,
  rank,
  LIST(rank) OVER same AS ranks,
  device,
  what,
  held_bytes,
  tried_bytes,
  allocated_bytes,
  reserved_bytes,
  unallocated_bytes,
  used_bytes,
  capacity_bytes,
  other_process,
  other_bytes,
  non_torch_bytes,
  CASE WHEN COUNT(*) OVER same > 1 THEN '; the worst of ' || COUNT(*) OVER same || ' alike' ELSE '' END AS alike,
  advice AS fix
FROM offenders
WINDOW same AS (PARTITION BY kind, level)
QUALIFY ROW_NUMBER() OVER (PARTITION BY kind, level ORDER BY lost DESC, rank) = 1
