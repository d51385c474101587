"""Step time of a layout in parts that sum: compute, exposed communication by dimension, bubble, optimizer, other.

The slowest stage sets the pace: T = m * T_slowest + what filling and draining the other stages adds + exposed gradient
traffic + optimizer + skew and host. It is a healthy, steady step: no stragglers beyond a usual 2 %, no data stalls.
Source of the pipeline law: Narayanan et al. 2021 section 2.2; of the parts: the modules that compute them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from diagnose.formulas.links import Fabric, Placement
from diagnose.formulas.schedules import ZERO_BUBBLE_SHARE
from diagnose.planner.devices import find_device
from diagnose.planner.exposed import exposed_ring_s, exposed_tensor_s
from diagnose.planner.gradients import Passes, data_parallel_s
from diagnose.planner.head import head_time
from diagnose.planner.host import LAUNCH_S, host_excess_s, host_time
from diagnose.planner.job import Job
from diagnose.planner.layers import Phase, layer_time
from diagnose.planner.stages import StageParameters, layers_per_stage, stage_parameters
from diagnose.planner.traffic import (
    Groups,
    expert_parallel_s,
    fabric_of,
    groups_of,
    pipeline_s,
    tensor_parallel_s,
)

SKEW_SPREAD = 0.01
"""Spread of one rank's step time; the slowest of n ranks is sqrt(2 ln n) spreads late (extreme value of a normal
law)."""
EXPERT_OVERLAP_RATIO = 0.366
"""Share of expert traffic that batch-level overlap hides (Megatron-Bridge moe-comm-overlap, Qwen3-30B on 16 H100)."""
WAITING = ("torchtitan",)
"""Frameworks whose interleaved schedule waits for every exchange (PyTorch distributed/pipelining/schedules.py,
PipelineScheduleMulti: `_batch_p2p(ops).wait()` after each action); Megatron's runs under the next chunk."""
OFFLOAD_BYTES = 6
"""Per offloaded parameter: an fp32 gradient to the host and a 16-bit weight back."""
HOST_LINK_BYTES_PER_S, HOST_MEMORY_BYTES_PER_S = 55e9, 40e9
"""PCIe 5 x16 as measured, and one GPU's share of the host's memory bandwidth (about 300 GB/s for eight)."""
OPTIMIZER_PASS_BYTES = 30
"""Adam reads weight, gradient and two moments and writes three of them and a 16-bit copy."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Multipliers that a measured run gives each kind of time; 1 means as the formulas say. Links inside a fast domain
    and across it (`_far`) are apart: a run on one says nothing of the other."""

    matmul: float = 1.0
    attention: float = 1.0
    elementwise: float = 1.0
    tp: float = 1.0
    cp: float = 1.0
    ep: float = 1.0
    pp: float = 1.0
    dp: float = 1.0
    tp_far: float = 1.0
    cp_far: float = 1.0
    ep_far: float = 1.0
    dp_far: float = 1.0
    host: float = 1.0
    optimizer: float = 1.0

    def wire(self, dimension: str, place: Placement) -> float:
        """The factor of the links that a group of this dimension uses."""
        factor: float = getattr(self, wire_kind(dimension, place))
        return factor

    @property
    def phase(self) -> Phase:
        return Phase(self.matmul, self.attention, self.elementwise)


def wire_kind(dimension: str, place: Placement) -> str:
    """Name of the factor for a group placed so."""
    return f"{dimension}_far" if place.domains > 1 else dimension


class StepTime(NamedTuple):
    """Seconds of one step; `total` is their sum. `bubble` is filling and draining, `other` skew and host time."""

    compute: float
    tp: float
    cp: float
    ep: float
    pp: float
    dp: float
    bubble: float
    optimizer: float
    other: float

    @property
    def total(self) -> float:
        return sum(self)


class _Stage(NamedTuple):
    """One micro-batch on one stage, seconds: compute forward and backward, and exposed communication of both."""

    forward: float
    backward: float
    tp: float
    cp: float
    ep: float
    host: float

    @property
    def total(self) -> float:
        return sum(self)


def step_time(job: Job, factors: Factors = Factors()) -> StepTime:
    """The step of `job`, its kinds of time multiplied by `factors`."""
    fabric, groups = fabric_of(job), groups_of(job)
    stages = _stages(job, factors, fabric, groups)
    slowest = max(stages, key=lambda stage: stage.total)
    m, layout = job.microbatches, job.layout
    share = ZERO_BUBBLE_SHARE[layout.schedule] / layout.vpp
    bubble = share * (sum(stage.total for stage in stages) - slowest.total)
    weights = max((stage_parameters(job, index) for index in {0, layout.pp - 1}), key=sum)
    send = pipeline_s(job, fabric, groups) * factors.pp
    exposed = m * layout.vpp if layout.vpp == 1 or job.search.framework in WAITING else 0
    crossings = 2 * exposed + 2 * (layout.pp - 1)
    dp = factors.wire("dp", groups.dp) * data_parallel_s(
        job, Passes(slowest.forward, slowest.backward), weights, fabric, groups
    )
    optimizer = factors.optimizer * _optimizer_s(job, weights)
    busy = m * slowest.total + bubble
    return StepTime(
        compute=m * (slowest.forward + slowest.backward),
        tp=m * slowest.tp,
        cp=m * slowest.cp,
        ep=m * slowest.ep,
        pp=send * crossings if layout.pp > 1 else 0.0,
        dp=dp,
        bubble=bubble,
        optimizer=optimizer,
        other=m * slowest.host + SKEW_SPREAD * math.sqrt(2 * math.log(layout.world_size)) * busy,
    )


def _stages(job: Job, factors: Factors, fabric: Fabric, groups: Groups) -> list[_Stage]:
    model, layout, device = job.model, job.layout, find_device(job.cluster.gpu)
    assert device is not None
    kinds = {moe: _layer(job, moe, factors, fabric, groups) for moe in _kinds(job)}
    head = head_time(job, device).scaled(factors.phase)
    counts, before, stages = layers_per_stage(job), 0, []
    for index, count in enumerate(counts):
        dense = max(0, min(count, model.dense_layers - before)) if model.experts else count
        before += count
        parts = [0.0] * 6
        for moe, layers in ((False, dense), (True, count - dense)):
            if layers:
                parts = [part + layers * own for part, own in zip(parts, kinds[moe], strict=True)]
        if index == layout.pp - 1:
            parts[0], parts[1] = parts[0] + head / 3, parts[1] + head * 2 / 3
        stages.append(_Stage(*parts))
    return stages


def _kinds(job: Job) -> list[bool]:
    if not job.model.experts:
        return [False]
    return [False, True] if job.model.dense_layers else [True]


def _layer(job: Job, moe: bool, factors: Factors, fabric: Fabric, groups: Groups) -> _Stage:
    """One layer and micro-batch: device time, exposed communication, and the host's time beyond the device's."""
    time = layer_time(job, moe)
    trainable = 1.0 if job.train.trainable_ratio == 1.0 else 0.5 + 0.5 * job.train.trainable_ratio
    phase = factors.phase
    forward, again = time.forward.scaled(phase), time.again.scaled(phase)
    backward = time.backward._replace(matmul_s=time.backward.matmul_s * trainable).scaled(phase)
    tp = factors.wire("tp", groups.tp) * exposed_tensor_s(
        job, tensor_parallel_s(job, fabric, groups, moe), time.forward.matmul_s * phase.matmul_s
    )
    ep = factors.wire("ep", groups.ep) * expert_parallel_s(job, fabric, groups) if moe else 0.0
    if job.layout.overlap_ep:
        ep *= 1 - EXPERT_OVERLAP_RATIO
    train = job.train
    host = host_time(
        time.kernels_count * LAUNCH_S * factors.host, train.cuda_graphs, train.graph_scope if moe else "all"
    )
    after = time.mlp_forward_s * phase.matmul_s + time.forward.elementwise_s * phase.elementwise_s / 2 + ep / 2
    waits = host_excess_s(
        host,
        forward + ep / 2 + tp / 2 - after,
        after,
        again + backward + (tp + ep) / 2,
        blocks=moe and train.routing != "capacity",
    )
    cp = factors.wire("cp", groups.cp) * exposed_ring_s(job, time, fabric, groups)
    return _Stage(forward, again + backward, tp, cp, ep, waits)


def _optimizer_s(job: Job, weights: StageParameters) -> float:
    """One pass over the weights, gradients and moments this rank updates."""
    device, layout = find_device(job.cluster.gpu), job.layout
    assert device is not None
    whole = layout.dp * layout.cp
    shards = min(job.train.shard_group or whole, whole) if job.train.zero else 1
    own = weights.dense / shards + weights.experts / (layout.edp if job.train.zero else 1)
    own *= job.train.trainable_ratio
    away = own * job.train.offload_ratio
    on_device = (own - away) * OPTIMIZER_PASS_BYTES / (0.8 * device.hbm_bytes_per_s)
    return on_device + away * (OFFLOAD_BYTES / HOST_LINK_BYTES_PER_S + OPTIMIZER_PASS_BYTES / HOST_MEMORY_BYTES_PER_S)
