"""The host's side of a mixture of experts, its dispatchers, and how far one run is believed: figures by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from diagnose.formulas.links import Placement, collective_s
from diagnose.planner import Job, calibrate
from diagnose.planner.calibrate import FAULT_SHARE, FAULT_SPREAD, ROW_SPREAD, trust
from diagnose.planner.gradients import gradient_bytes
from diagnose.planner.host import HostTime, host_excess_s, host_time
from diagnose.planner.layers import layer_time
from diagnose.planner.step_time import Factors, step_time, wire_kind
from diagnose.planner.traffic import expert_parallel_s, fabric_of, groups_of, tensor_parallel_s

GPT = {"layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 16384, "vocab": 51200, "seq_len": 4096}
MOE = {**GPT, "experts": 64, "topk": 8, "expert_ffn": 1024}


def job(model: dict[str, Any] = MOE, gpus: int = 16, framework: str = "megatron", **tables: Any) -> Job:
    train = {"micro_batch": 1, "global_batch": 64, "recompute": "none"} | tables.pop("train", {})
    return Job.from_dict(
        {
            "model": dict(model),
            "train": train,
            "cluster": {"gpus": gpus, "gpu": "H100-80GB"},
            "search": {"framework": framework},
            **tables,
        }
    )


def test_launches_are_a_third_forward_and_a_third_of_those_before_the_counts() -> None:
    assert host_time(9.0, False, "all") == pytest.approx((1.0, 2.0, 6.0))
    assert host_time(9.0, True, "all") == pytest.approx((0.15, 0.3, 0.9))
    assert host_time(9.0, True, "dense") == pytest.approx((0.15, 2.0, 6 * (0.15 / 3 + 2 / 3)))


def test_a_host_that_blocks_on_counts_cannot_make_up_what_it_lost() -> None:
    """Host 1, 2, 6 against device 3, 1, 5: launching ahead it hides all; blocking it waits 1 after the counts and 1
    backward."""
    host = HostTime(1.0, 2.0, 6.0)
    assert host_excess_s(host, 3.0, 1.0, 5.0, blocks=False) == 0
    assert host_excess_s(host, 3.0, 1.0, 5.0, blocks=True) == 2
    assert host_excess_s(host, 3.0, 1.0, 4.0, blocks=False) == 1
    assert host_excess_s(host, 3.0, 3.0, 7.0, blocks=True) == 0


def test_a_fixed_capacity_never_blocks() -> None:
    """Tiny layers, 7 ms of launches each against 3.5 ms that also run ahead of the device."""
    short = {**MOE, "seq_len": 64, "layers": 2}
    ragged, fixed = (step_time(job(short, train={"routing": name})).other for name in ("dropless", "capacity"))
    assert 0 < fixed < ragged / 2


def test_plain_all_to_all_sends_a_token_for_every_expert() -> None:
    """EP 16 over two nodes: eight copies of a token, and not one for each of two nodes."""
    mine, plain = job(layout={"ep": 16}), job(layout={"ep": 16}, train={"dispatcher": "alltoall"})
    fabric, groups = fabric_of(mine), groups_of(mine)
    one = 4096 * 4096 * 2.0
    nodes = 2 * (1 - 0.5**8)
    assert expert_parallel_s(plain, fabric, groups) == pytest.approx(
        4 * collective_s("all_to_all", 8 * one, groups.ep, fabric)
    )
    assert expert_parallel_s(mine, fabric, groups) == pytest.approx(
        4 * collective_s("all_to_all", nodes * one, groups.ep, fabric)
    )
    near = [replace(each, cluster=replace(each.cluster, fast_domain=16)) for each in (mine, plain)]
    times = {expert_parallel_s(each, fabric_of(each), groups_of(each)) for each in near}
    assert len(times) == 1  # inside a node both send a copy for every expert


def test_plain_all_to_all_sorts_its_rows_a_second_time() -> None:
    """Eight more bytes of traffic for every element that is routed: 4,096 tokens * 8 experts * 4,096."""
    each, plain = (layer_time(job(train={"dispatcher": name}), True) for name in ("", "alltoall"))
    more = plain.forward.elementwise_s - each.forward.elementwise_s
    assert more == pytest.approx(8 * 4096 * 8 * 4096 / (0.8 * 3.35e12), rel=1e-3)


def test_a_gather_in_8_bits_is_half_and_a_reduction_stays() -> None:
    tables: dict[str, Any] = {"layout": {"tp": 8}}
    wide, narrow = (
        job(GPT, 8, "torchtitan", train={"precision": "fp8", "gather_dtype": d}, **tables) for d in ("bf16", "fp8")
    )
    fabric, groups = fabric_of(wide), groups_of(wide)
    size = 2.0 * 4096 * 4096
    scatter = collective_s("reduce_scatter", size, groups.tp, fabric)
    for each, gathered in ((wide, size), (narrow, size / 2)):
        said = tensor_parallel_s(each, fabric, groups, False)
        assert said == pytest.approx(2 * (scatter + collective_s("all_gather", gathered, groups.tp, fabric)))


@pytest.mark.parametrize(
    ("framework", "zero", "dtype", "batch", "bytes_"),
    [
        ("megatron", 1, "fp32", 16, 0.0),  # one micro-batch: nothing is added up
        ("megatron", 1, "fp32", 64, 10.0),  # new gradient read, fp32 sum read and written
        ("fsdp", 3, "fp32", 64, 14.0),  # cast 2 + 4, divided 4 + 4
        ("fsdp", 3, "bf16", 64, 4.0),  # divided 2 + 2
        ("torchtitan", 3, "fp32", 64, 14.0),  # cast while copied in 2 + 4, weights copied out twice 2 * 4
    ],
)
def test_traffic_of_handling_gradients(framework: str, zero: int, dtype: str, batch: int, bytes_: float) -> None:
    train = {"zero": zero, "grad_dtype": dtype, "global_batch": batch}
    assert gradient_bytes(job(GPT, 16, framework, train=train)) == bytes_


def test_torchtitan_copies_keys_to_every_query_head() -> None:
    """Read 2 * 1,024, written 2 * 4,096 values of two bytes for each token."""
    mine, theirs = (layer_time(job(GPT, 8, name), False).forward.elementwise_s for name in ("megatron", "torchtitan"))
    assert theirs - mine == pytest.approx(4096 * 4 * (4096 + 1024) / (0.8 * 3.35e12))


def test_pytorchs_interleaved_schedule_waits_for_every_exchange() -> None:
    """PP 4, 2 chunks, 16 micro-batches: Megatron shows 6 crossings, PyTorch 64 more."""
    tables: dict[str, Any] = {"layout": {"pp": 4, "vpp": 2, "dp": 4}, "train": {"global_batch": 64}}
    mine, theirs = (step_time(job(GPT, 16, name, **tables)).pp for name in ("megatron", "torchtitan"))
    assert theirs / mine == pytest.approx((6 + 2 * 16 * 2) / 6)


def test_links_inside_and_across_a_node_have_factors_of_their_own() -> None:
    inside, across = Placement(8, 8), Placement(16, 8)
    factors = Factors(ep=2.0, ep_far=0.5)
    assert [wire_kind("ep", place) for place in (inside, across)] == ["ep", "ep_far"]
    assert [factors.wire("ep", place) for place in (inside, across)] == [2.0, 0.5]


def test_a_run_inside_one_node_says_nothing_of_the_network() -> None:
    near = job(gpus=8, layout={"ep": 8}, train={"cuda_graphs": True})
    calibration = calibrate(near, {"step_ns": 1.2e9 * step_time(near).total})
    assert calibration.factors.ep > 1
    assert calibration.factors.ep_far == pytest.approx(1.0)


def test_a_measured_part_corrects_the_links_it_ran_on() -> None:
    far = job(layout={"ep": 16}, train={"cuda_graphs": True})
    plain = step_time(far)
    calibration = calibrate(far, {"step_ns": 1.1e9 * plain.total, "part_ns": {"ep": 1.5e9 * plain.ep}})
    assert calibration.factors.ep_far > 1.2
    assert calibration.factors.ep == 1.0


def test_a_run_far_from_its_model_is_a_faulty_run() -> None:
    """The mixture's posterior by hand; a run near the model is believed as before, one three times slower hardly."""
    each = job(GPT, 8, layout={"tp": 8})
    near, far = trust(each, 0.0), trust(each, math.log(3.0))
    prior = near / (1 - near) * ROW_SPREAD**2  # good up to the share of faults
    assert trust(each, 0.05) == pytest.approx(near, rel=0.01)
    usual, faulty = prior + ROW_SPREAD**2, prior + ROW_SPREAD**2 + FAULT_SPREAD**2
    density = [
        share * math.exp(-(math.log(3.0) ** 2) / 2 / variance) / math.sqrt(variance)
        for share, variance in ((1 - FAULT_SHARE, usual), (FAULT_SHARE, faulty))
    ]
    fault = density[1] / sum(density)
    assert fault > 0.99
    assert far == pytest.approx((1 - fault) * prior / usual + fault * prior / faulty, rel=0.05)
    assert far < 0.1 < near


def test_what_measured_parts_explain_is_no_fault_and_what_nothing_explains_is_named() -> None:
    each = job(layout={"ep": 16}, train={"cuda_graphs": True})
    plain = step_time(each)
    slow = {"step_ns": 1e9 * (plain.total + 1.2 * plain.ep), "part_ns": {"ep": 2.2e9 * plain.ep}}
    explained = calibrate(each, slow)
    assert explained.notes == ()
    assert explained.factors.ep_far > 1.8
    assert explained.step_ratio == pytest.approx(1.0, abs=0.05)
    faulty = calibrate(each, {"step_ns": 4e9 * plain.total})
    assert "4.0 times what the model gives" in faulty.notes[0]
    assert faulty.reproduced[0][2] < 2 * plain.total
    assert "only 20% of" in calibrate(each, {"step_ns": 0.2e9 * plain.total}).notes[0]
