"""Ranks from names: real-looking names with the right answer, which is often none."""

from __future__ import annotations

import pytest

from diagnose.ingest._ranks import rank_in_folders, rank_in_name

NAMES = {
    # writers that name the rank
    "rank3.Jan_01_10_00.pt.trace.json": 3,
    "host1_rank-2.1700000000.pt.trace.json": 2,
    "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": 34,
    "rank0_trace.json": 0,
    "rank12_trace.json.gz": 12,
    "rank-7.json.gz": 7,
    "trace_rank0.json.gz": 0,
    "sampled_rank-1.json.gz": 1,
    "<b>rank1&.json": 1,
    "rank0 (копия).pt.trace.json": 0,
    "轨迹_rank5.json": 5,
    "vllm_0_rank_0.1719393.pt.trace.json.gz": 0,
    "comm_lib_trace_rank_1": 1,
    "nccl_trace_rank_15": 15,
    "dump_fr_trace_rank3.pkl": 3,
    "modded-nanogpt-hook-gpu-rank-00-chrome-trace.json.gz": 0,
    "RANK_4.json": 4,
    "Rank12.json": 12,
    "traceRank3.json": 3,
    "rank=6.json": 6,
    "rank[2].json": 2,
    "rank 9.json": 9,
    "rank003.json": 3,
    "rank_3_of_8.json": 3,
    "rank3of8.json": 3,
    "global_rank_12.json": 12,
    "world_rank_11.json": 11,
    "rank12_local_rank4.json": 12,
    "tp1_rank5.json": 5,
    "rank5_tp_rank1.json": 5,
    "rank0.rank0.json": 0,
    "node1_rank9_step100.json": 9,
    "rank_1023.trace": 1023,
    # names without a rank
    "trace.json": None,
    "worker_77.json": None,
    "worker0.pt.trace.json": None,
    "worker0.1623143089861.pt.trace.json.gz": None,
    "29dba67d__worker0.pt.trace.json.gz": None,
    "host_1234.1700000.pt.trace.json": None,
    "vm_11205.1795963099848175749.pt.trace.json.gz": None,
    "libkineto_activities_4242.json": None,
    "profile_3.json": None,
    "iteration_12.json": None,
    "step_based_trace_2543932.json.gz": None,
    "gpu3.json": None,
    "node2.json": None,
    "tp1.json": None,
    "tp_rank1.json": None,
    "local_rank0.json": None,
    "localRank0.json": None,
    "pp_rank_2.json": None,
    "mp_rank_00.json": None,
    "data_parallel_rank3.json": None,
    "lora_rank16.csv": None,
    "node_rank1.json": None,
    "rank_not_found.json.gz": None,
    "rank_non_gpu.json.gz": None,
    "rank_20240501.json": None,
    "rank_1700000000.json": None,
    "rank0-rank7.json": None,
    "from_rank0_to_rank1.json": None,
    "ranks8.json": None,
    "nranks8.json": None,
    "frank3.json": None,
    "Frank3.json": None,
    "pagerank2.json": None,
    "rank4x8.json": None,
    "rank2gpu.json": None,
    "r3.json": None,
    "rank.json": None,
    "": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_rank_in_name(name: str) -> None:
    assert rank_in_name(name) == NAMES[name]


@pytest.mark.parametrize(
    ("folders", "rank"),
    [
        (["rank3", "run"], 3),
        (["traces", "rank_12"], 12),
        (["rank4.tar.gz", "rank9"], 4),
        (["Rank-2"], 2),
        (["global_rank_7"], 7),
        (["lora_rank16_lr3"], None),
        (["iteration_4", "3"], None),
        (["mp_rank_00"], None),
        ([], None),
    ],
)
def test_rank_in_folders(folders: list[str], rank: int | None) -> None:
    assert rank_in_folders(folders) == rank
