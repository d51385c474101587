/*
title = "The allocator flushes its cache to find memory"
severity = "warning"
needs = ["log_events"]
needs_values = ["log_events.kind"]
summary = "{detail}: memory is so tight that PyTorch frees its cache and asks the device again, which stops every stream"
why = """
When no cached block fits and cudaMalloc fails, the allocator frees its whole cache and tries again. Each time the device waits,
and ranks flush at different times, so that all wait for each."""
fix = """
Use less: smaller micro-batch, more sharding, or recomputation (DeepSpeed: smaller stage3_max_live_parameters and bucket sizes).
If that cannot be, call torch.cuda.empty_cache() (DeepSpeed get_accelerator().empty_cache()) at the same step on all ranks, so
that they wait together."""
quiet_when = "no such warning stands in the log, and no counter of retries was given or it is small"
collect = "the text log of the ranks, or torch.cuda.memory_stats()['num_alloc_retries']"
sources = ["https://github.com/deepspeedai/DeepSpeedExamples/issues/172"]
[params]
min_flush_count = { default = 2, doc = "flushes in the log; one can be the first step filling the cache" }
*/
SELECT
  0 AS lost_ns,
  rank,
  [rank] AS ranks,
  count AS flushes_count,
  detail
FROM log_events
WHERE kind::VARCHAR IN ('allocator_flushes', 'allocator_retries') AND count > $min_flush_count
