/*
title = "Out of memory although enough is free: it lies in pieces"
severity = "critical"
needs = ["memory_moments", "holes"]
needs_values = ["memory_moments.allocated_bytes"]
decides = true
summary = "rank {rank}, device {device}: a request of {tried_bytes} failed although {recoverable_bytes} were free: {stranded_bytes} of them lie in segments that live blocks keep{hole}{pinned}"
why = """
The caching allocator gives a segment back only when all of it is free. Long-lived blocks between short-lived ones keep
segments that are mostly free, and a request needs one free range, not a sum of small ones."""
fix = """
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (from PyTorch 2.9 also PYTORCH_ALLOC_CONF) lets free pages move between
segments. It conflicts with CUDA IPC, older DeepEP and pools of inference engines such as vLLM: check before setting it. Where it cannot be used: max_split_size_mb just
above the usual block size keeps large segments whole, garbage_collection_threshold:0.8 frees unused ones earlier, and
long-lived tensors made before the first step do not lie between activations (DDP, FSDP, DeepSpeed, Megatron-LM alike)."""
quiet_when = "the request did not fit even a perfect allocator, or little of the reserved memory lies in pieces"
collect = "a CUDA memory snapshot taken at the failure (torch.cuda.memory._record_memory_history() before it), or the whole message"
sources = [
  "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
  "https://github.com/pytorch/pytorch/issues/35901",
]
[params]
min_stranded_ratio = { default = 0.05, doc = "of the reserved memory; below, pieces are the usual rest of any allocator; a guess, to be fitted" }
*/
WITH failed AS (
  SELECT *, recoverable_bytes - COALESCE(private_free_bytes, 0) AS usable_bytes
  FROM memory_moments
  WHERE moment::VARCHAR = 'oom' AND allocator::VARCHAR = 'pytorch' AND stranded_bytes IS NOT NULL AND tried_bytes IS NOT NULL
),
pins AS (
  SELECT rank, device, pinned_by, SUM(pinned_count)::BIGINT AS pinned_count, SUM(free_bytes)::BIGINT AS kept_bytes
  FROM holes
  WHERE moment::VARCHAR = 'oom' AND pinned_by IS NOT NULL
  GROUP BY rank, device, pinned_by
),
pin AS (
  SELECT rank, device, ARG_MAX(pinned_by, kept_bytes) AS pinned_by, ARG_MAX(pinned_count, kept_bytes) AS pinned_count
  FROM pins
  GROUP BY rank, device
)
SELECT
  0 AS lost_ns,
  f.stranded_bytes AS lost_bytes,
  f.rank,
  [f.rank] AS ranks,
  f.device,
  f.tried_bytes,
  f.recoverable_bytes,
  f.stranded_bytes,
  f.unallocated_bytes,
  f.largest_hole_bytes,
  f.reserved_bytes,
  f.expandable,
  f.conflict,
  p.pinned_by,
  p.pinned_count,
  CASE WHEN f.largest_hole_bytes IS NULL THEN ''
       ELSE '; the largest hole has ' || round(f.largest_hole_bytes / 1048576.0, 1) || ' MiB' END AS hole,
  CASE WHEN p.pinned_by IS NULL THEN ''
       ELSE '; ' || p.pinned_count || ' live blocks of ' || p.pinned_by || ' keep most of it' END AS pinned,
  CASE WHEN f.largest_hole_bytes IS NULL THEN 0.8 ELSE 1.0 END AS confidence_ratio,
  CASE WHEN f.expandable THEN
         'Expandable segments are already on, so the allocator has done what it can: lower the peak, or keep long-lived '
         || 'and short-lived tensors apart (make buffers before the first step; DDP gradient_as_bucket_view, FSDP and '
         || 'Megatron-LM contiguous buffers). Pages are 2 MiB: many small live blocks still strand them.'
       WHEN f.conflict IS NOT NULL THEN
         'This job uses ' || f.conflict || ', which expandable_segments breaks, so leave that off. Instead: '
         || 'max_split_size_mb just above the usual block size, garbage_collection_threshold:0.8 in '
         || 'PYTORCH_CUDA_ALLOC_CONF, long-lived buffers made before the first step, and torch.cuda.empty_cache() '
         || 'once between phases (it costs a synchronise).'
  END AS fix,
  NULL AS undecided
FROM failed AS f LEFT JOIN pin AS p ON p.rank IS NOT DISTINCT FROM f.rank AND p.device = f.device
WHERE f.tried_bytes <= f.usable_bytes
  AND (f.largest_hole_bytes IS NULL OR f.largest_hole_bytes < f.tried_bytes)
  AND f.stranded_bytes > $min_stranded_ratio * f.reserved_bytes
