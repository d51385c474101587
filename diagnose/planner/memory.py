"""Six-part memory of the most loaded stage: parameters, gradients, optimizer, activations, comm buffers, fragmentation.

Formulas give the first four; buffers and the allocator's share are a usual range until one measured run fixes them. The
figure is the peak of one GPU as nvidia-smi shows it, on whichever of the first and last stage holds more.
Sources: formulas.memory; in-flight micro-batches: formulas.schedules; DeepSpeed and FSDP residues: their documentation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from diagnose.formulas.memory import StateBytes, attention_activation_bytes, mlp_activation_bytes, shard, state_bytes
from diagnose.formulas.schedules import chunks_in_flight
from diagnose.planner.job import Job
from diagnose.planner.stages import StageParameters, layers_per_stage, stage_parameters
from diagnose.planner.transients import transient_bytes

CONTEXT_BYTES = 1.0e9
"""CUDA context and library workspaces: 0.5 to 1.5 GB."""
COMMUNICATOR_BYTES = 0.3e9
"""One NCCL communicator: 4 MiB a channel and peer, tens to hundreds of MB in all (NCCL src/init.cc)."""


DEEPSPEED_BUCKET = 5e8
"""Elements of the buffer in which DeepSpeed reduces gradients (reduce_bucket_size, contiguous_gradients)."""


class Memory(NamedTuple):
    """Bytes on one GPU; `total` is their sum."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    comm_buffers: float
    fragmentation: float

    @property
    def total(self) -> float:
        return sum(self)


def peak_memory(job: Job) -> Memory:
    """Six parts of the fullest stage."""
    ends = {0, job.layout.pp - 1}
    return max((_stage_memory(job, stage) for stage in sorted(ends)), key=lambda memory: memory.total)


def memory_by_part(job: Job) -> dict[str, float]:
    """What the formulas give, with the memory outside PyTorch apart from the communication buffers; bytes."""
    outside = non_torch_bytes(job)
    found = peak_memory(job)._asdict()
    return found | {"comm_buffers": found["comm_buffers"] - outside, "non_torch": outside}


def _stage_memory(job: Job, stage: int) -> Memory:
    weights = stage_parameters(job, stage)
    parameters, gradients, optimizer = _states(job, weights)
    return Memory(
        parameters,
        gradients,
        optimizer * (1 - job.train.offload_ratio),
        _activations(job, stage),
        _comm_buffers(job, weights),
        0.0,
    )


def _accumulator_bytes(job: Job) -> float:
    """A second gradient copy: DeepSpeed's bf16 optimizer and nanotron keep 16-bit gradients beside their fp32 sum."""
    framework = job.search.framework
    two = framework in ("deepspeed", "nanotron") and job.train.precision == "bf16" and job.train.grad_dtype == "fp32"
    return 2.0 if two else 0.0


def _optimizer_gradient_bytes(job: Job) -> float:
    """The fp32 copy of 16-bit gradients that DeepSpeed's fp16 optimizer updates from, sharded like its moments
    (stage_1_and_2.py: `single_grad_partition.to(fp32)`, its estimator's 16 bytes)."""
    return 4.0 if job.search.framework == "deepspeed" and job.train.grad_dtype != "fp32" else 0.0


def _states(job: Job, weights: StageParameters) -> tuple[float, float, float]:
    """Weights, gradients and optimizer bytes of one rank after sharding; frozen weights have neither of the last
    two."""
    train, layout = job.train, job.layout
    full = state_bytes(
        train.precision, train.grad_dtype, train.optimizer.replace("adamw", "adam"), _accumulator_bytes(job)
    )
    full = replace(full, optimizer=full.optimizer + _optimizer_gradient_bytes(job))
    zero = train.zero
    if job.search.framework in ("fsdp", "torchtitan") and zero >= 2:  # fp32 shards are the master copy
        full, zero = StateBytes(4.0, float(full.gradients), full.optimizer - 4), 3
    ranks = min(train.shard_group or layout.dp * layout.cp, layout.dp * layout.cp)
    dense, experts = shard(full, zero, ranks), shard(full, zero, layout.edp)
    live = train.trainable_ratio
    return (
        weights.dense * dense.parameters + weights.experts * experts.parameters,
        live * (weights.dense * dense.gradients + weights.experts * experts.gradients),
        live * (weights.dense * dense.optimizer + weights.experts * experts.optimizer),
    )


def _activations(job: Job, stage: int) -> float:
    """Stored for backward, times what the schedule keeps in flight, plus what is alive for a moment."""
    layout = job.layout
    count = layers_per_stage(job)[stage]
    flight = chunks_in_flight(layout.pp, stage, job.microbatches, layout.vpp, layout.schedule) / layout.vpp
    full, working = _layer_bytes(job, stage)
    stored = full
    if "full" in job.train.recompute:
        stored = _input_bytes(job)
    return stored * count * flight + transient_bytes(job, stage, working if stored < working else 0.0)


def _input_bytes(job: Job) -> float:
    """The one tensor that full recompute keeps per layer."""
    tokens = job.train.micro_batch * job.model.seq_len / job.layout.cp
    return 2 * tokens * job.model.hidden / (job.layout.tp if job.layout.sp else 1)


def _layer_bytes(job: Job, stage: int) -> tuple[float, float]:
    """Bytes one layer and micro-batch stores under the recipe, and the same with nothing recomputed."""
    model, train, layout = job.model, job.train, job.layout
    tokens = train.micro_batch * model.seq_len / layout.cp
    unfused = train.attention_kernel == "unfused" or model.attention == "full"
    scores = (5 if train.dropout else 4) * model.heads * tokens * model.seq_len if unfused else 0.0
    width, kv = model.heads * (model.head_dim + model.rope_dim), model.kv_heads * model.head_dim
    attention = attention_activation_bytes(tokens, model.hidden, width, kv, layout.tp, layout.sp)
    if model.attention == "mla":
        attention += 2 * tokens * (model.q_lora + model.kv_lora)
    mlp = _mlp_bytes(job, tokens, moe=bool(model.experts))
    if train.dropout:
        attention += tokens * model.hidden / (layout.tp if layout.sp else 1)
        mlp += tokens * model.hidden / (layout.tp if layout.sp else 1)
    if train.fusion != "all":
        mlp += 2 * tokens * model.ffn / layout.tp
    modules = set(train.recompute)
    everything = attention + scores / layout.tp + mlp
    if "every_other_product" in modules:  # block input, query, value, attention output, gate and down projection
        return 2 * tokens * (2 * model.hidden + (2 * width + kv + model.ffn) / layout.tp), everything
    kept = attention + (0.0 if modules & {"selective", "core_attn"} else scores / layout.tp)
    kept += 0.0 if modules & {"mlp", "moe"} else mlp
    kept -= _light_bytes(job, tokens, modules)
    return kept, everything


def _light_bytes(job: Job, tokens: float, modules: set[str]) -> float:
    """What recomputing single cheap modules frees: norm outputs, expanded latent keys and values, expert
    activations."""
    model, layout = job.model, job.layout
    freed = 0.0
    if "layernorm" in modules:
        freed += 4 * tokens * model.hidden / (layout.tp if layout.sp else 1)
    if "mla_up_proj" in modules and model.attention == "mla":
        freed += 4 * tokens * model.heads * model.head_dim / layout.tp
    if "moe_act" in modules and model.experts:
        freed += 2 * tokens * model.topk * model.expert_ffn / layout.etp / (layout.tp if layout.tp > layout.etp else 1)
    return freed


def _mlp_bytes(job: Job, tokens: float, moe: bool) -> float:
    model, layout = job.model, job.layout
    if not moe:
        return mlp_activation_bytes(tokens, model.hidden, model.ffn, model.gated, layout.tp, layout.sp)
    routed = tokens / (layout.tp if layout.tp > layout.etp else 1) * model.topk
    experts = routed * 2 * (2 * model.hidden + (3 if model.gated else 2) * model.expert_ffn / layout.etp)
    shared = mlp_activation_bytes(tokens, model.hidden, model.shared_ffn, model.gated, layout.tp, layout.sp)
    return experts + shared


def non_torch_bytes(job: Job) -> float:
    """What nvidia-smi shows and PyTorch's allocator does not: the CUDA context and one communicator a live group."""
    layout = job.layout
    groups = sum(degree > 1 for degree in (layout.tp, layout.pp, layout.cp, layout.ep, layout.dp, layout.etp)) + 1
    return CONTEXT_BYTES + COMMUNICATOR_BYTES * groups * (layout.world_size > 1)


def _comm_buffers(job: Job, weights: StageParameters) -> float:
    """Communicators, context, and gathered units: two layers of 16-bit weights under FSDP, everything with a
    pipeline."""
    layout, train = job.layout, job.train
    buffers = non_torch_bytes(job)
    if train.zero >= 2 and job.search.framework in ("fsdp", "torchtitan", "deepspeed"):
        layers = max(1, *layers_per_stage(job))
        held = (weights.dense + weights.experts) * 2
        if layout.pp > 1:  # weights stay gathered and gradients unsharded between micro-batches
            buffers += held + (weights.dense + weights.experts) * 4
        elif train.zero == 3:
            buffers += 2 * held / layers + job.model.vocab * job.model.hidden * 2 / layout.tp
        else:
            buffers += held
    if train.zero in (1, 2) and job.search.framework == "deepspeed":
        buffers += 2.0 * DEEPSPEED_BUCKET
    tokens = train.micro_batch * job.model.seq_len / layout.cp
    if layout.pp > 1:
        buffers += 4 * tokens * job.model.hidden * 2 / layout.tp
    if layout.ep > 1:
        buffers += 2 * tokens * job.model.topk * job.model.hidden * 2 / (layout.tp if layout.tp > layout.etp else 1)
    return buffers
