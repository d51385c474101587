"""Memory that lives for a moment, and traffic of single frameworks: figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.formulas.links import Placement, collective_s
from diagnose.planner import Job, calibrate, predict
from diagnose.planner.devices import find_device
from diagnose.planner.gradients import _slices_s, _tied_s
from diagnose.planner.head import head_bytes, head_time, loss_of
from diagnose.planner.memory import peak_memory
from diagnose.planner.residual import MemoryBelief
from diagnose.planner.traffic import fabric_of, groups_of
from diagnose.planner.transients import gathered_bytes, held_bytes, reclaimable_bytes, scheduled_bytes, transient_bytes

GIB = 2**30
GPT = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 128000, "seq_len": 4096}
FULL = 2 * 2 * 4096 * 4096  # two sequences of 4,096 tokens, 4,096 wide, 16-bit


def job(framework: str = "megatron", model: dict[str, Any] | None = None, gpus: int = 8, **tables: Any) -> Job:
    train = {"micro_batch": 2, "global_batch": 64, "recompute": "none"} | tables.pop("train", {})
    return Job.from_dict(
        {
            "model": GPT | (model or {}),
            "train": train,
            "cluster": {"gpus": gpus, "gpu": "H100-80GB"},
            "search": {"framework": framework},
            **tables,
        }
    )


@pytest.mark.parametrize(("loss", "traffic", "peak"), [("fused", 8, 4), ("torch", 36, 12), ("parallel", 52, 10)])
def test_a_loss_costs_traffic_and_memory_for_every_logit(loss: str, traffic: int, peak: int) -> None:
    each = job(train={"loss": loss}, layout={"tp": 8})
    device = find_device("H100-80GB")
    assert device
    logits = 2 * 4096 * 128000 / 8
    assert head_time(each, device).elementwise_s == pytest.approx(traffic * logits / (0.8 * device.hbm_bytes_per_s))
    assert head_bytes(each) == pytest.approx(peak * logits + 4 * 2 * 4096 * 4096 / 8)


def test_the_loss_that_is_not_named_is_the_frameworks() -> None:
    assert [loss_of(job(name)).traffic for name in ("megatron", "nanotron", "torchtitan", "fsdp")] == [52, 52, 36, 36]


def test_of_loss_and_recomputed_layer_the_larger_is_alive() -> None:
    each = job(train={"recompute": "full"})
    head = head_bytes(each)
    assert transient_bytes(each, 0, head / 2) == head
    assert transient_bytes(each, 0, 3 * head) == 3 * head


def test_tensor_parallel_ranks_gather_full_tensors_for_a_moment() -> None:
    assert gathered_bytes(job(layout={"tp": 4})) == 2 * FULL
    assert gathered_bytes(job("torchtitan", layout={"tp": 4})) == 5 * FULL
    assert gathered_bytes(job(layout={"tp": 1})) == 0
    assert gathered_bytes(job(layout={"tp": 4, "sp": False})) == 0


def test_blocks_held_for_a_collective_grow_to_the_launch_queue() -> None:
    """Two outputs a layer; 1,024 launches are 51.2 layers of 20 forward kernels; a stage has its own layers only."""
    assert held_bytes(job("nanotron", layout={"tp": 4}), 0) == 2 * 32 * FULL
    assert held_bytes(job("nanotron", {"layers": 80}, layout={"tp": 4}), 0) == pytest.approx(2 * 51.2 * FULL)
    assert held_bytes(
        job("nanotron", {"layers": 80}, 16, layout={"tp": 4, "stage_layers": [15, 25, 25, 15], "pp": 4}), 0
    ) == (2 * 15 * FULL)
    assert held_bytes(job("nanotron", layout={"tp": 1}), 0) == held_bytes(job(layout={"tp": 4}), 0) == 0


def test_held_blocks_alone_never_run_a_job_out_of_memory() -> None:
    """A job whose stored tensors fit and whose held blocks do not: cut to the limit; what does not fit stays so."""
    big = {"layers": 64, "hidden": 6144, "heads": 48, "ffn": 24576}
    each = job("nanotron", big, layout={"tp": 8}, train={"micro_batch": 4, "zero": 0})
    wanted = peak_memory(each).total
    assert reclaimable_bytes(each) > 5e9
    tight = replace(each, cluster=replace(each.cluster, gpu_memory_bytes=int(wanted)))
    calibration = calibrate(each, {"memory_bytes": wanted})
    said = predict(tight, calibration)
    assert said.fits is True
    assert said.memory.total == pytest.approx(0.94 * int(wanted))
    small = replace(each, cluster=replace(each.cluster, gpu_memory_bytes=int(wanted - reclaimable_bytes(each))))
    assert predict(small, calibration).fits is False


def test_pytorch_pipelines_keep_a_buffer_for_every_micro_batch_and_all_logits() -> None:
    """PP 4, 8 micro-batches, TP 2: each tensor is half; first stage: gradients come back, four micro-batches' outputs;
    last: inputs arrive, one output, eight micro-batches' 16-bit logits."""
    each = job("torchtitan", layout={"tp": 2, "pp": 4}, train={"global_batch": 16})
    assert each.microbatches == 8
    assert scheduled_bytes(each, 0) == (8 + 4) * FULL / 2
    assert scheduled_bytes(each, 1) == (16 + 3) * FULL / 2
    assert scheduled_bytes(each, 3) == (8 + 1) * FULL / 2 + 8 * 2 * 2 * 4096 * 128000 / 2
    assert scheduled_bytes(job(layout={"tp": 2, "pp": 4}), 3) == 0


def test_deepspeed_updates_from_an_fp32_copy_of_its_sharded_gradients() -> None:
    """16 bytes a parameter over the ranks, not 12, and a bucket of 500 M elements."""
    common: dict[str, Any] = {"train": {"grad_dtype": "fp16", "precision": "fp16", "zero": 1}, "layout": {"tp": 4}}
    mine, plain = peak_memory(job("deepspeed", **common)), peak_memory(job("megatron", **common))
    assert mine.optimizer == pytest.approx(plain.optimizer * 16 / 12)
    assert mine.comm_buffers == pytest.approx(plain.comm_buffers + 1e9)


def test_a_tied_embedding_is_reduced_between_first_and_last_stage() -> None:
    tied = job("megatron", {"tied": True}, 16, layout={"tp": 2, "pp": 4})
    fabric, groups = fabric_of(tied), groups_of(tied)
    size = 128000 * 4096 / 2 * 4
    assert _tied_s(tied, groups, fabric) == collective_s("all_reduce", size, Placement(2, 2), fabric)
    apart = replace(groups, pp_crosses=True)
    assert _tied_s(tied, apart, fabric) == collective_s("all_reduce", size, Placement(2, 1), fabric)
    assert _tied_s(job("megatron", None, 16, layout={"tp": 2, "pp": 4}), groups, fabric) == 0


def test_nanotron_copies_a_slice_for_each_parameter_and_rank() -> None:
    """32 layers * 6 parameters * 8 ranks, 10 us each."""
    each = job("nanotron")
    assert _slices_s(each, groups_of(each)) == pytest.approx(32 * 6 * 8 * 10e-6)
    alone = job("nanotron", layout={"tp": 8})
    assert _slices_s(alone, groups_of(alone)) == 0


def test_a_measured_peak_moves_the_belief_by_its_variances() -> None:
    """One unknown at a time has a closed form; with all three the posterior reproduces most of the surprise."""
    memory = peak_memory(job())._replace(activations=0.0)
    belief = MemoryBelief((0.0, 0.0, 0.0), ((0.0,) * 3, (0.0,) * 3, (0.0, 0.0, 4e18)))
    peak = memory.total + 3e9
    after = belief.after(memory, peak)
    gain = 4e18 / (4e18 + (0.09 * peak) ** 2)
    assert after.mean[2] == pytest.approx(gain * 3e9)
    assert after.covariance[2][2] == pytest.approx(4e18 * (1 - gain))
    assert after.half_width_bytes(memory) < belief.half_width_bytes(memory)
    assert MemoryBelief().after(memory, peak).residual_bytes(memory) < 0.5 * memory.total


def test_the_allocators_share_grows_with_the_job_and_the_constant_does_not() -> None:
    small, large = peak_memory(job(layout={"tp": 8})), peak_memory(job())
    belief = MemoryBelief()
    assert belief.residual_bytes(small) / small.total == pytest.approx(belief.residual_bytes(large) / large.total)
    assert belief.residual_bytes(small) < 1 * GIB + 0.07 * small.total
