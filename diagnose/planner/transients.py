"""Memory that lives for a moment beside the stored activations, and decides the peak: the loss, one recomputed layer,
the full-size tensors of tensor parallelism, and what a framework's collectives and schedules hold back.

The loss is over before any layer's backward pass begins, so of the two the larger counts. None of it is a leak:
a peak says when it is alive. Sources: the frameworks' code and PyTorch's notes, named where each figure stands.
"""

from __future__ import annotations

from diagnose.planner.head import head_bytes
from diagnose.planner.host import forward_kernels_count
from diagnose.planner.job import Job
from diagnose.planner.stages import layers_per_stage

LAUNCH_QUEUE = 1024
"""Kernels the host can have launched and not yet seen start: the depth of CUDA's launch queue."""
RECORDED = ("nanotron", "deepspeed")
"""Frameworks on PyTorch's default of the day, record_stream: a tensor handed to NCCL returns to the allocator only when
the device has passed the collective, and the host is far ahead (dev-discuss.pytorch.org/t/1486; Megatron and torchtitan
run with TORCH_NCCL_AVOID_RECORD_STREAMS)."""
GATHERED = {"torchtitan": 5}
"""Full-size tensors of a tensor parallel layer's backward pass. torchtitan: both gathered inputs (DTensor saves what it
gathered), the gathered gradient, one product for each of the two column-parallel matrices. Others: a gathered input and
the gradient of it."""


def transient_bytes(job: Job, stage: int, layer: float) -> float:
    """The larger of the loss and one layer's backward pass; `layer` is what recompute brings back of it, in bytes."""
    head = head_bytes(job) if stage == job.layout.pp - 1 else 0.0
    return max(head, layer + gathered_bytes(job)) + held_bytes(job, stage) + scheduled_bytes(job, stage)


def full_size_bytes(job: Job) -> float:
    """One 16-bit tensor of hidden size for all tokens of a micro-batch, not divided over tensor parallel ranks."""
    return 2.0 * job.train.micro_batch * job.model.seq_len / job.layout.cp * job.model.hidden


def gathered_bytes(job: Job) -> float:
    """Tensors that sequence parallelism gathers, or has yet to scatter, in one layer's backward pass."""
    layout = job.layout
    return GATHERED.get(job.search.framework, 2) * full_size_bytes(job) if layout.tp > 1 and layout.sp else 0.0


def held_bytes(job: Job, stage: int) -> float:
    """Two row-parallel outputs a layer that wait for the device, as far as the host is ahead: its launch queue, and no
    further than one micro-batch (the exchange between pipeline stages reads sizes back)."""
    if job.layout.tp == 1 or job.search.framework not in RECORDED:
        return 0.0
    ahead = min(layers_per_stage(job)[stage], LAUNCH_QUEUE / forward_kernels_count(bool(job.model.experts)))
    return 2 * ahead * full_size_bytes(job)


def reclaimable_bytes(job: Job) -> float:
    """Held blocks that an allocation under pressure takes back: the allocator waits for their events and retries
    (c10/cuda/CUDACachingAllocator.cpp, synchronize_and_free_events), so they alone never run a job out of memory."""
    return max(held_bytes(job, stage) for stage in (0, job.layout.pp - 1))


def scheduled_bytes(job: Job, stage: int) -> float:
    """PyTorch's pipeline: a receive buffer for every micro-batch and direction, outputs of those in flight, and on the
    last stage every micro-batch's logits until the step ends (distributed/pipelining/stage.py)."""
    layout = job.layout
    if layout.pp == 1 or job.search.framework != "torchtitan":
        return 0.0
    share = full_size_bytes(job) / (layout.tp if layout.sp else 1)
    directions = (stage > 0) + (stage < layout.pp - 1)
    buffers = (directions * job.microbatches + min(job.microbatches, layout.pp - stage)) * share
    if stage < layout.pp - 1:
        return buffers
    tokens = job.train.micro_batch * job.model.seq_len / layout.cp
    return buffers + job.microbatches * 2 * tokens * job.model.vocab / layout.tp
