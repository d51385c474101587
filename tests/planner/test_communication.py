"""What each kind of parallelism sends, hides and computes again: figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.formulas.links import collective_s
from diagnose.planner import Job
from diagnose.planner.exposed import exposed_tensor_s
from diagnose.planner.step_time import step_time
from diagnose.planner.traffic import context_parallel_s, fabric_of, groups_of

GPT = {"layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 16384, "vocab": 51200, "seq_len": 32768}


def job(framework: str = "megatron", recompute: str | list[str] = "none", **layout: int | bool | str) -> Job:
    degrees = {"tp": 8} | layout
    product = int(degrees.get("tp", 1)) * int(degrees.get("cp", 1)) * int(degrees.get("pp", 1))
    return Job.from_dict(
        {
            "model": dict(GPT),
            "train": {"micro_batch": 1, "global_batch": 8, "recompute": recompute},
            "layout": degrees,
            "cluster": {"gpus": product, "gpu": "H100-80GB"},
            "search": {"framework": framework},
        }
    )


@pytest.mark.parametrize(
    ("framework", "recompute", "passes"),
    [
        ("megatron", "none", 2.0),
        ("megatron", "full", 3.0),
        ("torchtitan", "full", 2.75),  # the last of the four collectives of a forward pass is not run again
        ("torchtitan", ["every_other_product"], 2.5),  # results of reductions are kept, gathers run again
    ],
)
def test_tensor_traffic_that_nothing_hides(framework: str, recompute: str | list[str], passes: float) -> None:
    assert exposed_tensor_s(job(framework, recompute), 1.0, 99.0) == passes


def test_chunked_tensor_traffic_exposes_its_first_chunk_where_products_cover_it() -> None:
    overlapped = job("megatron", overlap_tp=True)
    assert exposed_tensor_s(overlapped, 1.0, 99.0) == 2 / 8
    assert exposed_tensor_s(overlapped, 1.0, 0.5) == pytest.approx(2 / 8 + (2 * 7 / 8 - 2 * 0.5))


def test_pytorch_hides_the_forward_pass_only() -> None:
    """One of two passes in eight chunks: 1/8 of the first and all of the second."""
    assert exposed_tensor_s(job("torchtitan", overlap_tp=True), 1.0, 99.0) == 1 / 8 + 1
    assert exposed_tensor_s(job("torchtitan", "full", overlap_tp=True), 1.0, 99.0) == pytest.approx(1.75 / 8 + 1)


def test_context_parallel_of_torchtitan_carries_a_key_for_every_head() -> None:
    """32 query heads over 8 key heads: four times the bytes of Megatron's ring."""
    mine, theirs = job("megatron", tp=1, cp=4), job("torchtitan", tp=1, cp=4)
    fabric, groups = fabric_of(mine), groups_of(mine)
    small, large = 2.0 * 32768 * 2 * 8 * 128, 2.0 * 32768 * 2 * 32 * 128
    assert context_parallel_s(mine, fabric, groups) == collective_s("all_gather", small, groups.cp, fabric)
    assert context_parallel_s(theirs, fabric, groups) == collective_s("all_gather", large, groups.cp, fabric)


def test_context_parallel_runs_again_with_the_attention_that_is_recomputed() -> None:
    slow = {"cp": 4, "tp": 1}
    once, again = (replace_links(job("megatron", recompute, **slow)) for recompute in ("none", "full"))
    # on links this slow attention covers next to nothing: three rings become four
    assert step_time(again).cp / step_time(once).cp == pytest.approx(4 / 3, rel=0.01)


def test_merging_rounds_costs_element_wise_traffic_only_in_pytorch() -> None:
    """With links that take no time, Megatron's ring exposes latency only and PyTorch's its fp32 merging."""
    fast = [replace_links(job(name, tp=1, cp=4), 1e18) for name in ("megatron", "torchtitan")]
    assert step_time(fast[0]).cp < 0.02
    elements = 32768 / 4 * 3 * 32 * 128
    merging = 8 * 8 * (32 + 50) * elements / (0.8 * 3.35e12)  # layers * micro-batches
    assert step_time(fast[1]).cp == pytest.approx(merging, rel=0.05)


def replace_links(each: Job, bytes_per_s: float = 1e6) -> Job:
    return replace(each, cluster=replace(each.cluster, intra_bytes_per_s=bytes_per_s, inter_bytes_per_s=bytes_per_s))
