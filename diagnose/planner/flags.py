"""Ready-to-paste settings of a layout for Megatron-LM, torchtitan and DeepSpeed.

Only what the layout decides: parallel degrees, batch, recompute, sharding, overlap. Model size and data stay as they
are. A setting a framework lacks becomes a comment, never an invented flag. Sources: Megatron-LM arguments.py,
torchtitan config_manager.py, DeepSpeed configuration reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from diagnose.planner.job import Job


def flags_of(job: Job) -> dict[str, str]:
    """Framework name -> text to paste."""
    return {name: write(job) for name, write in WRITERS.items()}


def megatron_flags(job: Job) -> str:
    """Arguments of Megatron-LM's pretrain scripts."""
    layout, train, model = job.layout, job.train, job.model
    flags = [
        f"--tensor-model-parallel-size {layout.tp}",
        f"--pipeline-model-parallel-size {layout.pp}",
        f"--context-parallel-size {layout.cp}",
        f"--micro-batch-size {train.micro_batch}",
        f"--global-batch-size {train.global_batch}",
    ]
    if layout.vpp > 1 and model.layers % (layout.pp * layout.vpp) == 0:
        flags.append(f"--num-layers-per-virtual-pipeline-stage {model.layers // (layout.pp * layout.vpp)}")
    elif layout.vpp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {layout.vpp}")
        flags += ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
    if model.experts:
        flags += [f"--expert-model-parallel-size {layout.ep}", f"--expert-tensor-parallel-size {layout.etp}"]
    if layout.sp and layout.tp > 1:
        flags.append("--sequence-parallel")
    if train.zero:
        flags.append("--use-distributed-optimizer")
    if layout.overlap_grad_reduce:
        flags += ["--overlap-grad-reduce"] + (["--overlap-param-gather"] if train.zero else [])
    if layout.overlap_tp:
        flags.append("--tp-comm-overlap")
    if "full" in train.recompute:
        flags.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    elif train.recompute:
        flags.append("--recompute-granularity selective")
    return " \\\n  ".join(flags)


def torchtitan_flags(job: Job) -> str:
    """Sections of torchtitan's TOML."""
    layout, train = job.layout, job.train
    shard = layout.dp if not train.shard_group else train.shard_group
    lines = [
        "[training]",
        f"local_batch_size = {train.global_batch // layout.dp}",
        f"global_batch_size = {train.global_batch}",
        "[parallelism]",
        f"data_parallel_replicate_degree = {layout.dp // shard}",
        f"data_parallel_shard_degree = {shard}",
        f'fsdp_reshard_after_forward = "{"always" if train.zero == 3 else "never"}"',
        f"tensor_parallel_degree = {layout.tp}",
        f"context_parallel_degree = {layout.cp}",
        f"pipeline_parallel_degree = {layout.pp}",
    ]
    if layout.pp > 1:
        names = {
            "interleaved": "Interleaved1F1B",
            "gpipe": "GPipe",
            "zb1p": "InterleavedZeroBubble",
            "zbv": "ZBVZeroBubble",
        }
        lines += [
            f'pipeline_parallel_schedule = "{names.get(layout.schedule, "1F1B")}"',
            f"pipeline_parallel_microbatch_size = {train.micro_batch}",
        ]
    if job.model.experts:
        lines.append(f"expert_parallel_degree = {layout.ep}")
    mode = "full" if "full" in train.recompute else "selective" if train.recompute else "none"
    return "\n".join([*lines, "[activation_checkpoint]", f'mode = "{mode}"'])


def deepspeed_flags(job: Job) -> str:
    """DeepSpeed's JSON; degrees that the model code decides stand in a comment line above it."""
    layout, train = job.layout, job.train
    config: dict[str, object] = {
        "train_batch_size": train.global_batch,
        "train_micro_batch_size_per_gpu": train.micro_batch,
        "gradient_accumulation_steps": job.microbatches,
        "zero_optimization": {"stage": train.zero, "overlap_comm": layout.overlap_grad_reduce},
        "bf16" if train.precision != "fp16" else "fp16": {"enabled": True},
    }
    if "full" in train.recompute:
        config["activation_checkpointing"] = {"partition_activations": layout.tp > 1}
    above = f"// in the model code: tensor parallel {layout.tp}, pipeline stages {layout.pp}"
    if layout.cp > 1:
        above += f", sequence parallel (Ulysses) {layout.cp}"
    return above + "\n" + json.dumps(config, indent=2)


WRITERS: dict[str, Callable[[Job], str]] = {
    "megatron": megatron_flags,
    "torchtitan": torchtitan_flags,
    "deepspeed": deepspeed_flags,
}
