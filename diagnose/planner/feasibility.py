"""Why a layout cannot run, before anybody asks how fast it would be: arithmetic, framework limits, memory.

Each reason is one line that names the figures. An empty list means legal, not good. Sources: Megatron-LM
arguments.py and parallel_state.py (divisibility, sequence parallel with experts), DeepSpeed pipe/engine.py ("ZeRO-2
and ZeRO-3 are incompatible with pipeline parallelism"), torchtitan and FSDP2 documentation.
"""

from __future__ import annotations

from diagnose.planner.job import Job
from diagnose.planner.prediction import NO_CALIBRATION, SAFE_MEMORY_RATIO, Calibration, memory_range

GB = 1e9


def why_illegal(job: Job) -> list[str]:
    """Everything about the layout that a framework would refuse; empty where it would start."""
    return [*_dimensions(job), *_pipeline(job), *_experts(job), *_framework(job)]


def why_too_large(job: Job, calibration: Calibration | None = None) -> str | None:
    """One line where the expected peak is above what the device can give; None where it is not (it may still be
    close)."""
    memory, low, high = memory_range(job, calibration or NO_CALIBRATION)
    if memory.total <= SAFE_MEMORY_RATIO * job.cluster.gpu_memory_bytes:
        return None
    part = max(memory._fields, key=lambda name: getattr(memory, name))
    return (
        f"needs {memory.total / GB:.0f} GB ({low / GB:.0f} to {high / GB:.0f}) "
        f"of {job.cluster.gpu_memory_bytes / GB:.0f} GB, most of it {part.replace('_', ' ')}"
    )


def warnings_of(job: Job) -> list[str]:
    """What is legal but usually a mistake: the fast domain left, few micro-batches, an uneven pipeline."""
    model, layout, domain = job.model, job.layout, job.cluster.fast_domain
    found = []
    if layout.tp > domain:
        found.append(f"TP {layout.tp} leaves the fast domain of {domain} GPUs: every layer waits for the network")
    if layout.ep * layout.etp > domain and job.model.experts:
        found.append(
            f"EP*ETP {layout.ep * layout.etp} leaves the fast domain of {domain} GPUs: dispatch crosses the network"
        )
    if layout.pp > 1 and job.microbatches < 4 * layout.pp:
        found.append(
            f"{job.microbatches} micro-batches for {layout.pp} stages: the bubble is small only from 4 per stage on"
        )
    if model.layers % (layout.pp * layout.vpp) and not layout.stage_layers:
        found.append(
            f"{model.layers} layers on {layout.pp * layout.vpp} chunks: uneven, the fullest stage sets the pace"
        )
    return found


def _dimensions(job: Job) -> list[str]:
    model, layout = job.model, job.layout
    found = []
    if model.heads % layout.tp:
        found.append(f"{model.heads} heads are not a multiple of TP {layout.tp}")
    if model.attention != "mla" and model.kv_heads % layout.tp and layout.tp % model.kv_heads:
        found.append(f"{model.kv_heads} kv_heads and TP {layout.tp}: neither divides the other")
    if model.ffn % layout.tp:
        found.append(f"FFN {model.ffn} is not a multiple of TP {layout.tp}")
    if model.seq_len % (2 * layout.cp) and layout.cp > 1:
        found.append(f"sequence {model.seq_len} does not split into 2*CP = {2 * layout.cp} balanced blocks")
    if layout.sp and layout.tp > 1 and model.seq_len // layout.cp % layout.tp:
        found.append(
            f"sequence {model.seq_len // layout.cp} per rank is not a multiple of TP {layout.tp} (sequence parallel)"
        )
    if job.train.global_batch % (layout.dp * job.train.micro_batch):
        found.append(
            f"global batch {job.train.global_batch} is not a multiple of "
            f"DP {layout.dp} * micro-batch {job.train.micro_batch}"
        )
    return found


def _pipeline(job: Job) -> list[str]:
    model, layout = job.model, job.layout
    found = []
    if layout.pp * layout.vpp > model.layers:
        found.append(f"{model.layers} layers cannot fill {layout.pp} stages of {layout.vpp} chunks")
    if layout.vpp > 1 and layout.pp == 1:
        found.append("chunks per stage (VPP) need a pipeline: PP is 1")
    if layout.vpp > 1 and job.microbatches % layout.pp:
        found.append(f"interleaving needs micro-batches ({job.microbatches}) in multiples of PP {layout.pp}")
    if layout.stage_layers and (len(layout.stage_layers) != layout.pp or sum(layout.stage_layers) != model.layers):
        found.append(
            f"stage_layers {list(layout.stage_layers)} are not {layout.pp} stages with {model.layers} layers in all"
        )
    return found


def _experts(job: Job) -> list[str]:
    model, layout = job.model, job.layout
    if not model.experts:
        return [f"EP {layout.ep} without experts"] if layout.ep > 1 else []
    found = []
    if model.experts % layout.ep:
        found.append(f"{model.experts} experts are not a multiple of EP {layout.ep}")
    if layout.world_size % (layout.etp * layout.ep * layout.pp):
        found.append(
            f"{layout.world_size} GPUs are not a multiple of ETP*EP*PP = {layout.etp * layout.ep * layout.pp}: "
            "EP folds into DP*CP*TP"
        )
    if model.expert_ffn % layout.etp:
        found.append(f"expert FFN {model.expert_ffn} is not a multiple of ETP {layout.etp}")
    if layout.tp > 1 and layout.ep > 1 and not layout.sp:
        found.append("TP with EP needs sequence parallel")
    return found


def _framework(job: Job) -> list[str]:
    train, layout, framework = job.train, job.layout, job.search.framework
    found = []
    if framework == "deepspeed" and train.zero >= 2 and layout.pp > 1:
        found.append(f"DeepSpeed refuses ZeRO-{train.zero} with a pipeline")
    if framework == "deepspeed" and layout.cp > 1:
        found.append("DeepSpeed has no context parallel (Ulysses splits heads instead)")
    if framework == "deepspeed" and layout.vpp > 1:
        found.append("DeepSpeed's pipeline does not interleave")
    if framework == "megatron" and train.zero >= 2 and layout.pp > 1:
        found.append(f"Megatron shards the optimizer (ZeRO-1) with a pipeline, not ZeRO-{train.zero}")
    if framework in ("torchtitan", "fsdp") and train.zero < 2 and layout.dp * layout.cp > 1:
        found.append(f"{framework} shards at least gradients (ZeRO-2 or 3), not ZeRO-{train.zero}")
    if framework == "fsdp" and max(layout.tp, layout.pp, layout.cp, layout.ep) > 1:
        found.append("plain FSDP has data parallel only")
    return found
