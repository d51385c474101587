/*
title = "The allocator's settings cost memory"
severity = "warning"
needs = ["memory_moments"]
needs_values = ["memory_moments.allocated_bytes"]
summary = "rank {rank}, device {device}: {what} {held_bytes}; {allocated_bytes} are allocated on a device of {capacity_bytes}"
why = """
A setting decides what the allocator may use and how it rounds: a memory fraction hides part of the device, rounding to powers
of two wastes up to half of each block, and the cudaMallocAsync backend keeps its own pool that snapshots do not show."""
fix = """
Look at PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF): drop roundup_power2_divisions where blocks are few and large, raise
torch.cuda.set_per_process_memory_fraction to what the device has, and prefer backend:native with snapshots to find what holds
the memory. DDP, FSDP, DeepSpeed and Megatron-LM all use the same allocator settings."""
quiet_when = "the native allocator may use the whole device and rounding costs little"
collect = "the whole out-of-memory message, or a CUDA memory snapshot, which carries the settings"
sources = ["https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf", "https://github.com/pytorch/pytorch/issues/110194"]
[params]
min_cost_ratio = { default = 0.1, doc = "of the device, or of what is allocated for rounding; a guess, to be fitted" }
*/
WITH seen AS (
  SELECT *, COALESCE(capacity_bytes, reserved_bytes + device_free_bytes) AS device_bytes FROM memory_moments
),
offenders AS (
  SELECT *, 'the cudaMallocAsync backend (whose state snapshots do not cover): neither allocated nor free are' AS what,
    unaccounted_bytes AS held_bytes,
    'Its pool keeps freed memory and may lie in pieces; other users of the device count here, too. Run once with '
    || 'PYTORCH_CUDA_ALLOC_CONF=backend:native and record a snapshot with torch.cuda.memory._dump_snapshot(): that shows '
    || 'who holds the memory. With this backend only nvidia-smi and torch.cuda.memory_stats() help.' AS advice
  FROM seen WHERE moment::VARCHAR = 'oom' AND allocator::VARCHAR = 'cudaMallocAsync'
    AND unaccounted_bytes > $min_cost_ratio * device_bytes
  UNION ALL BY NAME
  SELECT *, 'a memory fraction forbids' AS what, capacity_bytes - limit_bytes AS held_bytes, NULL AS advice
  FROM seen WHERE moment::VARCHAR = 'oom' AND capacity_bytes - limit_bytes > $min_cost_ratio * capacity_bytes
  UNION ALL BY NAME
  SELECT *, 'rounding of sizes loses' AS what, internal_bytes AS held_bytes, NULL AS advice
  FROM seen WHERE internal_bytes > $min_cost_ratio * allocated_bytes AND internal_bytes > 67108864
)
SELECT
  0 AS lost_ns,
  held_bytes AS lost_bytes,
  rank,
  [rank] AS ranks,
  device,
  what,
  held_bytes,
  tried_bytes,
  allocated_bytes,
  capacity_bytes,
  device_free_bytes,
  limit_bytes,
  expandable,
  allocator,
  advice AS fix
FROM offenders
