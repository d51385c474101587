"""Gradient and weight traffic of data parallelism, plain or sharded, and what of it a step cannot hide.

Plain: one all-reduce a step in buckets. ZeRO-1 and 2: reduce-scatter and all-gather, the same bytes, once a step.
ZeRO-3 (and FSDP): gathers again in the backward pass, half as much again, and all of it for every micro-batch. Sources:
Rajbhandari et al. 2020 section 7, PyTorch FSDP notes, Megatron-LM core/distributed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from diagnose.formulas.links import Fabric, Placement, collective_s
from diagnose.planner.devices import find_device
from diagnose.planner.host import LAUNCH_S
from diagnose.planner.job import Job
from diagnose.planner.stages import StageParameters, layers_per_stage
from diagnose.planner.traffic import WIDTH_BYTES, Groups

COLLECTIVE_SMS = 24
"""Streaming multiprocessors that NCCL's channels take while it runs (16 to 32 on an NVSwitch node; DeepSeek-V3: 20)."""
LATE_PREFETCH = ("fsdp",)
"""FSDP1 as Composer configures it (backward_prefetch=BACKWARD_POST): weights are gathered after a unit's backward,
exposed."""


class Passes(NamedTuple):
    """Compute of one micro-batch on the slowest stage: what traffic can hide behind."""

    forward_s: float
    backward_s: float


def sharded_per_microbatch(job: Job) -> bool:
    """Weights are gathered for every micro-batch (ZeRO-3, and FSDP without a pipeline)."""
    return (
        job.layout.pp == 1
        and job.layout.dp * job.layout.cp > 1
        and (job.train.zero == 3 or (job.train.zero == 2 and job.search.framework in ("fsdp", "torchtitan")))
    )


def gradient_bytes(job: Job) -> float:
    """Device traffic per parameter and micro-batch of handling gradients (and gathered weights) around collectives.

    Plain accumulation reads the new gradient, reads and writes the sum. Sharded weights: gradients are cast to the
    reduced type and divided before they are scattered (torch/distributed/fsdp/_runtime_utils.py); FSDP2 casts while it
    copies in, and copies gathered weights out, twice (fsdp/_fully_shard/_fsdp_collectives.py).
    """
    wide = 4 if job.train.grad_dtype == "fp32" else 2
    if not sharded_per_microbatch(job):
        return 0.0 if job.microbatches == 1 else 2.0 + 2 * wide
    if job.search.framework == "torchtitan":
        return 2.0 + wide + 2 * (2 + 2)
    return (2.0 + wide if wide > 2 else 0.0) + 2 * wide


def data_parallel_s(job: Job, passes: Passes, weights: StageParameters, fabric: Fabric, groups: Groups) -> float:
    """Exposed gradient and weight traffic of a step."""
    train, frozen = job.train, job.train.trainable_ratio
    grad = WIDTH_BYTES[train.grad_dtype] * frozen
    reduce = _both(job, weights, grad, "reduce_scatter", fabric, groups) + _across_s(job, weights, grad, fabric, groups)
    gather = _both(job, weights, 2.0 * frozen, "all_gather", fabric, groups)
    if sharded_per_microbatch(job):
        units = job.model.layers  # one collective a layer: its ring latency is paid per layer
        layer = StageParameters(weights.dense / units, weights.experts / units)
        gather = units * _both(job, layer, 2.0, "all_gather", fabric, groups)
        across = units * _across_s(job, layer, grad, fabric, groups)
        reduce = units * _both(job, layer, grad, "reduce_scatter", fabric, groups) + across
        again = gather if train.zero == 3 else 0.0
        late = again if job.search.framework in LATE_PREFETCH else 0.0
        return job.microbatches * (late + _behind_each(job, passes, gather, again - late + reduce))
    if not train.zero:  # every rank keeps all gradients: one all-reduce, in the framework's buckets
        reduce, gather = _all_reduce_s(job, weights, grad, fabric, groups), 0.0
    elif job.search.framework in SLICED:
        reduce = _whole_all_reduce_s(job, weights, grad, fabric, groups)
        gather += _slices_s(job, groups)
    tied = _tied_s(job, groups, fabric)
    if not job.layout.overlap_grad_reduce:
        return reduce + gather + tied
    layers = max(layers_per_stage(job))
    tail = (reduce + gather) / layers
    hidden = max(0.0, reduce - tail - passes.backward_s) + max(0.0, gather - tail - passes.forward_s)
    return tail + hidden + tied


BUCKET_BYTES = {"nanotron": 25e6, "fsdp": 25e6, "torchtitan": 25e6, "deepspeed": 5e8, "megatron": 1.6e8}
"""Gradient bucket: 25 MB in PyTorch's DDP, 500 M elements in DeepSpeed (capped here), 40 M parameters in Megatron."""


def _all_reduce_s(job: Job, weights: StageParameters, width: float, fabric: Fabric, groups: Groups) -> float:
    """Gradients of plain data parallel, bucket after bucket."""
    total = 0.0
    for size, place in ((weights.dense * width, groups.dp), (weights.experts * width, groups.edp)):
        buckets = max(1.0, size / BUCKET_BYTES[job.search.framework])
        total += buckets * collective_s("all_reduce", size / buckets, place, fabric) if size else 0.0
    return total


SLICED = ("nanotron",)
"""Frameworks whose ZeRO-1 all-reduces the whole gradient buffer ("too memory hungry, instead we run all_reduce",
trainer.py) and gathers weights as one slice for each parameter and rank (optim/zero.py, all_gather_coalesced)."""
MATRICES_PER_LAYER = 6
"""Parameters of a nanotron layer: query-key-value, output, gate-up, down, two norms (models/llama.py)."""


def _whole_all_reduce_s(job: Job, weights: StageParameters, width: float, fabric: Fabric, groups: Groups) -> float:
    """Every gradient in one all-reduce."""
    return collective_s("all_reduce", weights.dense * width, groups.dp, fabric) + collective_s(
        "all_reduce", weights.experts * width, groups.edp, fabric
    )


def _slices_s(job: Job, groups: Groups) -> float:
    """Host time of copying gathered weights out: an operator for each slice of each parameter, whatever its size."""
    if groups.dp.ranks == 1:
        return 0.0
    return max(layers_per_stage(job)) * MATRICES_PER_LAYER * groups.dp.ranks * LAUNCH_S


def _tied_s(job: Job, groups: Groups, fabric: Fabric) -> float:
    """Gradients of a tied embedding: one all-reduce between first and last stage after the backward pass (Megatron-LM
    finalize_model_grads, nanotron sync_tied_weights_gradients)."""
    model, layout, train = job.model, job.layout, job.train
    if not model.tied or layout.pp == 1:
        return 0.0
    size = model.vocab * model.hidden / layout.tp * WIDTH_BYTES[train.grad_dtype] * train.trainable_ratio
    return collective_s("all_reduce", size, Placement(2, 1 if groups.pp_crosses else 2), fabric)


def _behind_each(job: Job, passes: Passes, forward: float, backward: float) -> float:
    """Per micro-batch: traffic hidden behind each pass, its first and last unit exposed, and the SMs it takes
    meanwhile."""
    device = find_device(job.cluster.gpu)
    slow = COLLECTIVE_SMS / (device.sms - COLLECTIVE_SMS) if device else 0.0
    exposed = (forward + backward) / (job.model.layers + 1)
    for compute, comm in ((passes.forward_s, forward), (passes.backward_s, backward)):
        exposed += max(0.0, comm - compute) + slow * min(comm, compute)
    return exposed


def _both(job: Job, weights: StageParameters, width: float, op: str, fabric: Fabric, groups: Groups) -> float:
    """Dense weights over dp*cp, experts over their own replicas."""
    dense = _shard_group(job, groups.dp)
    links = _one_rail(fabric, dense) if _single_ring(job) else fabric
    return collective_s(op, weights.dense * width, dense, links) + collective_s(
        op, weights.experts * width, groups.edp, fabric
    )


def _shard_group(job: Job, place: Placement) -> Placement:
    """Hybrid sharding gathers inside groups of `shard_group` neighbours."""
    group = job.train.shard_group
    return Placement(min(place.ranks, group), min(place.per_domain, group)) if group else place


def _across_s(job: Job, weights: StageParameters, width: float, fabric: Fabric, groups: Groups) -> float:
    """Hybrid sharding: each shard's gradients are all-reduced over the groups that hold the same shard."""
    group = job.train.shard_group
    if not group or group >= groups.dp.ranks:
        return 0.0
    replicas = Placement(groups.dp.ranks // group, max(1, groups.dp.per_domain // group))
    return collective_s("all_reduce", weights.dense * width / group, replicas, fabric)


def _single_ring(job: Job) -> bool:
    """DeepSpeed's ZeRO-3 runs one ring over all ranks: it crosses each node on one NIC, not on all of them."""
    return job.train.zero == 3 and job.search.framework == "deepspeed"


def _one_rail(fabric: Fabric, place: Placement) -> Fabric:
    return replace(fabric, inter_bytes_per_s=fabric.inter_bytes_per_s / place.per_domain)
