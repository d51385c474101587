"""Identities of a prediction, the errata of the tutorials as numbers, and what may never get better or worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.planner import Job, calibrate, predict, why_illegal
from diagnose.planner.flags import flags_of
from diagnose.planner.memory import peak_memory
from diagnose.planner.stages import layers_per_stage, parameter_count, stage_parameters
from diagnose.planner.step_time import step_time
from diagnose.planner.traffic import expert_parallel_s, fabric_of, groups_of, tensor_parallel_s

LLAMA_70B = {
    **{"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256, "seq_len": 8192},
}
GPT = {"layers": 8, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 51200, "seq_len": 2048, "gated": False}
MOE = {**GPT, "experts": 64, "topk": 8, "expert_ffn": 1024}


def job(model: dict[str, Any] = LLAMA_70B, gpus: int = 64, **tables: Any) -> Job:
    train = {"micro_batch": 1, "global_batch": 512} | tables.pop("train", {})
    cluster = {"gpus": gpus, "gpu": "H100-80GB"} | tables.pop("cluster", {})
    return Job.from_dict({"model": dict(model), "train": train, "cluster": cluster, **tables})


def test_parts_of_the_step_and_of_memory_sum() -> None:
    each = predict(job(layout={"tp": 8, "pp": 4}))
    assert sum(each.step) == pytest.approx(each.step_s)
    assert sum(each.memory) == pytest.approx(each.memory.total)
    assert each.memory_low_bytes < each.memory.total < each.memory_high_bytes
    assert each.tokens_per_s_per_gpu == pytest.approx(512 * 8192 / each.step_s / 64)
    assert min(each.step) >= 0


def test_parameters_of_known_models() -> None:
    assert parameter_count(job().model) == pytest.approx(70.6e9, rel=0.005)
    gpt3 = {"layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "gated": False, "tied": True, "vocab": 51200}
    assert parameter_count(job({**gpt3, "seq_len": 2048}).model) == pytest.approx(174.6e9, rel=0.005)
    deepseek = {
        **{"layers": 61, "hidden": 7168, "heads": 128, "head_dim": 128, "attention": "mla", "q_lora": 1536},
        **{"kv_lora": 512, "rope_dim": 64, "ffn": 18432, "vocab": 129280, "experts": 256, "topk": 8},
        **{"expert_ffn": 2048, "shared_ffn": 2048, "dense_layers": 3},
    }
    assert parameter_count(job(deepseek).model) == pytest.approx(671e9, rel=0.005)


def test_world_size_identities_ep_folds_and_never_multiplies() -> None:
    """512 GPUs are TP8 * PP8 * DP8 with EP8 inside DP, not 8^4."""
    moe = job({**MOE, "layers": 16}, 512, layout={"tp": 8, "pp": 8, "ep": 8}, train={"global_batch": 512})
    layout = moe.layout
    assert layout.dp * layout.tp * layout.pp * layout.cp == 512
    assert layout.etp * layout.ep * layout.pp * layout.edp == 512
    assert moe.microbatches * layout.dp * moe.train.micro_batch == moe.train.global_batch
    assert why_illegal(moe) == []


def test_stages_do_not_multiply_the_global_batch() -> None:
    assert job(layout={"tp": 8, "pp": 4}).microbatches == 512 // 2
    assert job(layout={"tp": 8, "pp": 2}).microbatches == 512 // 4


def test_four_tensor_parallel_collectives_a_layer_and_six_with_full_recompute() -> None:
    plain = job(layout={"tp": 8, "sp": False})
    once = tensor_parallel_s(plain, fabric_of(plain), groups_of(plain), moe=False)
    layers = plain.model.layers * plain.microbatches
    assert step_time(plain).tp == pytest.approx(2 * layers * once)
    full = job(layout={"tp": 8, "sp": False}, train={"recompute": "full"})
    assert step_time(full).tp == pytest.approx(3 * layers * once)


def test_sequence_parallel_moves_the_same_bytes() -> None:
    plain, sequence = (job(layout={"tp": 4, "sp": sp}, cluster={"gpu": "A100-80GB"}) for sp in (False, True))
    ratio = step_time(sequence).tp / step_time(plain).tp
    assert ratio == pytest.approx(1.0, abs=0.15)
    assert peak_memory(sequence).activations < peak_memory(plain).activations


def test_uneven_pipeline_the_fullest_stage_sets_the_pace() -> None:
    assert layers_per_stage(job({**LLAMA_70B, "layers": 78}, 96, layout={"tp": 8, "pp": 12})) == (7,) * 11 + (1,)
    assert sum(layers_per_stage(job({**LLAMA_70B, "layers": 126}, 64, layout={"tp": 8, "pp": 8}))) == 126


def test_zero_3_moves_half_as_much_again_as_zero_2_and_repeats_every_micro_batch() -> None:
    def exposed(zero: int, batch: int) -> float:
        parts = {"train": {"zero": zero, "global_batch": batch}, "search": {"framework": "torchtitan"}}
        slow = job(gpus=64, cluster={"inter_bytes_per_s": 1e9}, **parts)
        return step_time(slow).dp

    assert 1.3 < exposed(3, 64) / exposed(2, 64) < 1.7
    assert exposed(3, 128) == pytest.approx(2 * exposed(3, 64), rel=0.05)


def test_hybrid_sharding_keeps_gathers_in_the_node_and_costs_memory() -> None:
    def at(group: int) -> Job:
        return job(
            GPT, 256, train={"zero": 3, "shard_group": group}, search={"framework": "torchtitan"},
            cluster={"inter_bytes_per_s": 3e9},
        )  # fmt: skip

    assert step_time(at(8)).dp < step_time(at(0)).dp
    assert peak_memory(at(8)).optimizer == pytest.approx(32 * peak_memory(at(0)).optimizer)


def test_accumulation_sends_gradients_once_a_step() -> None:
    quiet = {"overlap_grad_reduce": False, "tp": 8, "pp": 4}
    few, many = (step_time(job(layout=quiet, train={"global_batch": batch})).dp for batch in (64, 512))
    assert few == pytest.approx(many)


def test_expert_traffic_two_exchanges_forward_and_two_backward() -> None:
    moe = job(MOE, 8, layout={"ep": 8}, train={"global_batch": 64})
    once = expert_parallel_s(moe, fabric_of(moe), groups_of(moe))
    fp8 = replace(moe, train=replace(moe.train, dispatch_dtype="fp8"))
    assert 0.7 * once < expert_parallel_s(fp8, fabric_of(fp8), groups_of(fp8)) < once
    assert step_time(moe).ep == pytest.approx(moe.microbatches * moe.model.layers * once)


def test_a_7b_model_does_not_fit_on_one_80_gb_gpu_and_does_when_sharded() -> None:
    """16 to 18 bytes a parameter are 112 GB and more: the size rule of the tutorials contradicts its own figure."""
    small = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000, "seq_len": 4096}
    assert predict(job(small, 1)).fits is False
    sharded = job(small, 64, train={"zero": 3}, search={"framework": "torchtitan"})
    assert predict(sharded).fits is not False


def test_the_score_that_always_prefers_pipelines_would_run_out_of_memory() -> None:
    """DP4 TP2 PP8 of 70B, what 10*tp + 3*pp + 0.5*dp picks: 70 GB of state before any activation."""
    picked = job(layout={"dp": 4, "tp": 2, "pp": 8}, train={"zero": 0})
    memory = peak_memory(picked)
    assert memory.parameters + memory.gradients + memory.optimizer > 70e9
    assert predict(picked).fits is False


def test_calibration_reproduces_its_run_and_transfers_the_direction() -> None:
    base = job(layout={"tp": 8, "pp": 4})
    plain = predict(base)
    slow = calibrate(base, {"step_ns": plain.step_s * 1.2e9, "memory_bytes": plain.memory.total + 8e9})
    again = predict(base, slow)
    assert again.step_s == pytest.approx(1.2 * plain.step_s, rel=0.06)
    assert plain.memory.total < again.memory.total <= plain.memory.total + 8e9
    other = job(layout={"tp": 4, "pp": 4})
    assert predict(other, slow).step_s > predict(other).step_s
    width = again.memory_high_bytes - again.memory_low_bytes
    assert width < plain.memory_high_bytes - plain.memory_low_bytes


def test_a_communication_bound_run_corrects_communication_more_than_compute() -> None:
    bound = job(layout={"tp": 8, "pp": 4}, cluster={"intra_bytes_per_s": 20e9})
    assert step_time(bound).tp > step_time(bound).compute
    factors = calibrate(bound, {"step_ns": step_time(bound).total * 1.3e9}).factors
    assert factors.tp > factors.matmul > 1


def test_calibration_from_a_diagnosis() -> None:
    base = job(layout={"tp": 8, "pp": 4})
    said = step_time(base)
    diagnosis = {
        "schema_version": 1,
        "step_time": {
            "median_ns": round(said.total * 1.1e9),
            "parts": [
                {"part": "compute", "dur_ns": round(said.compute * 1.1e9)},
                {"part": "tp_transfer", "dur_ns": round(said.tp * 1.0e9)},
                {"part": "tp_wait", "dur_ns": round(said.tp * 5e9)},
            ],
        },
        "memory": [
            {"rank": 0, "moment": "peak", "part": "parameters", "bytes": 40_000_000_000},
            {"rank": 0, "moment": "peak", "part": "activations", "bytes": 21_000_000_000},
            {"rank": 1, "moment": "end", "part": "parameters", "bytes": 99_000_000_000},
        ],
    }
    found = calibrate(base, diagnosis)
    assert found.factors.tp == pytest.approx(1.0, abs=0.01)  # waiting is not the link's
    assert found.factors.matmul == pytest.approx(1.1, abs=0.03)
    assert {name: value for name, value, _ in found.reproduced}["memory_bytes"] == 61e9


def test_settings_to_paste() -> None:
    flags = flags_of(job(layout={"tp": 4, "pp": 8, "vpp": 5}, train={"recompute": "full"}))
    assert "--num-layers-per-virtual-pipeline-stage 2" in flags["megatron"]  # layers per chunk, not chunks
    assert "--tensor-model-parallel-size 4" in flags["megatron"]
    assert 'pipeline_parallel_schedule = "Interleaved1F1B"' in flags["torchtitan"]
    assert '"gradient_accumulation_steps": 256' in flags["deepspeed"]


DEGREES = st.sampled_from([1, 2, 4, 8])


@settings(max_examples=60, deadline=None)
@given(tp=DEGREES, pp=DEGREES, micro=st.sampled_from([1, 2, 4]), recompute=st.sampled_from(["none", "full"]))
def test_monotone_in_what_must_be_monotone(tp: int, pp: int, micro: int, recompute: str) -> None:
    def at(**train: Any) -> Job:
        recipe = {"micro_batch": micro, "recompute": recompute, "global_batch": 512} | train
        return job(GPT, 64, layout={"tp": tp, "pp": pp}, train=recipe)

    states = []
    for zero in (0, 1, 2, 3):
        memory = peak_memory(at(zero=zero))
        states.append(memory.parameters + memory.gradients + memory.optimizer)
    assert states == sorted(states, reverse=True)
    assert peak_memory(at(micro_batch=2 * micro)).activations > peak_memory(at()).activations
    assert peak_memory(at(recompute="full")).activations <= peak_memory(at(recompute="none")).activations
    assert step_time(at(recompute="full")).compute > step_time(at(recompute="none")).compute
    assert step_time(at(global_batch=1024)).total > step_time(at()).total
    assert step_time(at()).total > 0


@given(st.sampled_from([1, 2, 4, 8, 16]))
def test_stage_parameters_add_up_to_the_model(stages: int) -> None:
    whole = job({**LLAMA_70B}, 128, layout={"pp": stages}, train={"zero": 0})
    total = sum(sum(stage_parameters(whole, index)) for index in range(stages))
    assert total == pytest.approx(parameter_count(whole.model), rel=1e-4)
