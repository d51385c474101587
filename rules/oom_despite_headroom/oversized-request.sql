/*
title = "One request is larger than everything that could be freed"
severity = "critical"
needs = ["memory_moments"]
needs_values = ["memory_moments.tried_bytes"]
summary = "rank {rank}, device {device}: one request of {tried_bytes} failed; even a perfect allocator had only {recoverable_bytes} ({device_free_bytes} free on the device, {unallocated_bytes} reserved but unallocated)"
why = """
A single tensor is a large share of the whole device: attention scores without a fused kernel, logits over a large vocabulary,
a gather of all shards, a whole batch at once. No allocator setting makes room for it."""
fix = """
Make that tensor smaller: chunk the loss and the logits (torchtitan loss chunks, Liger or Megatron-LM fused cross entropy),
use a fused attention kernel (torch.nn.functional.scaled_dot_product_attention), gather in pieces, cut micro-batch or
sequence, or split it over ranks (tensor, sequence, context parallel). The stack of the failed call names it."""
quiet_when = "the request is small against the device, or a better allocator would have found room"
collect = "the whole out-of-memory message, or a CUDA memory snapshot taken at the failure"
sources = ["https://github.com/vllm-project/vllm/issues/7721"]
[params]
min_request_ratio = { default = 0.25, doc = "of the device's memory, or of what PyTorch could have; a guess, to be fitted" }
*/
SELECT
  0 AS lost_ns,
  tried_bytes - recoverable_bytes AS lost_bytes,
  rank,
  [rank] AS ranks,
  device,
  tried_bytes,
  recoverable_bytes,
  device_free_bytes,
  unallocated_bytes,
  allocated_bytes,
  capacity_bytes,
  tried_bytes / COALESCE(capacity_bytes, reserved_bytes + device_free_bytes) AS request_ratio
FROM memory_moments
WHERE moment::VARCHAR = 'oom' AND allocator::VARCHAR = 'pytorch'
  AND tried_bytes > recoverable_bytes
  AND tried_bytes > $min_request_ratio * COALESCE(capacity_bytes, reserved_bytes + device_free_bytes)
