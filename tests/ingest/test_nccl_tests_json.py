"""JSON results of nccl-tests: the writer's dialect, and nothing of its environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnose.ingest import Source, read

SECRET = "hunter2-very-secret"


def result(size: int, bus: Any = 22.5, **more: Any) -> dict[str, Any]:
    one = {"time": 1793105.0, "alg_bw": 15.0, "bus_bw": bus, "nwrong": "0"}
    return {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
            "out_of_place": one, "in_place": one, "actual_iterations": 20} | more  # fmt: skip


def report(*results: dict[str, Any], program: str = "./build/all_reduce_perf", hosts: int = 2) -> str:
    devices = [
        {"rank": i, "group": 0, "pid": 70 + i, "hostname": f"node-{i * hosts // 4}", "device": i % 2} for i in range(4)
    ]
    config = {"nthreads": 1, "graph": 0, "blocking_collectives": "false", "validation": "true", "devices": devices}
    document = {
        "version": 3, "start_time": "2026-01-02 03:04:05", "args": [program, "--token", SECRET],
        "env": [f"WANDB_API_KEY={SECRET}", "X=: inf, nan"], "nccl_version": 22805, "config": config,
        "results": list(results), "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 22.5, "okay": "unchecked"}, "errors": [], "end_time": "x",
    }  # fmt: skip
    return json.dumps(document, indent=1).replace("Infinity", "inf")


def of(tmp_path: Path, text: str, name: str = "bench.json") -> dict[str, Any]:
    path = tmp_path / name
    path.write_text(text)
    return {table: rows.to_pylist() for table, rows in read(Source(str(path))).items()}


def test_a_result_is_two_rows_as_in_the_text_form(tmp_path: Path) -> None:
    found = of(tmp_path, report(result(26843545600), result(8, 0.1)))
    first, second, *_ = found["bandwidths"]
    assert (first["op"], first["size_bytes"], first["dtype"]) == ("all_reduce", 26843545600, "float32")
    assert (first["group_size"], first["node_count"], first["dur_ns"]) == (4, 2, 1_793_105_000)
    assert first["busbw_bytes_per_s"] == pytest.approx(22.5e9) and first["algbw_bytes_per_s"] == pytest.approx(15e9)
    assert [first["placement"], second["placement"]] == ["out_of_place", "in_place"]
    (file,) = found["files"]
    assert (file["kind"], file["status"], file["events_count"], file["host"]) == ("nccl_tests", "ok", 4, None)
    assert found["quality"] == []


def test_nothing_of_the_environment_or_the_arguments_is_kept(tmp_path: Path) -> None:
    whole = report(result(1024))
    for text in (whole, whole[: whole.index('"results"') + 14], whole.replace('"config"', '"config')):
        assert SECRET not in str(of(tmp_path, text))


def test_a_bare_infinity_is_unknown_and_text_with_the_word_stays(tmp_path: Path) -> None:
    text = report(result(1024, float("inf")), result(2048, "nan"), result(4096, program="inf"))
    assert ": inf" in text
    found = of(tmp_path, text)
    assert [r["busbw_bytes_per_s"] for r in found["bandwidths"]] == [None] * 4 + [pytest.approx(22.5e9)] * 2
    assert [(q["problem"], q["count"]) for q in found["quality"]] == [("non_finite_number", 2)]
    assert found["files"][0]["status"] == "repaired"


def test_a_cut_file_gives_its_complete_results(tmp_path: Path) -> None:
    text = report(result(1024), result(2048), result(4096))
    found = of(tmp_path, text[: text.index('"size": 4096') + 40])
    assert [r["size_bytes"] for r in found["bandwidths"]] == [1024, 1024, 2048, 2048]
    assert found["files"][0]["status"] == "partial" and found["quality"][0]["problem"] == "truncated"
    assert found["bandwidths"][0]["group_size"] == 4


def test_without_a_complete_result_the_file_is_unusable(tmp_path: Path) -> None:
    found = of(tmp_path, report())
    assert found["files"][0]["status"] == "unusable" and "no complete result" in found["files"][0]["detail"]


def test_the_program_else_the_factor_else_the_name_tells_the_operation(tmp_path: Path) -> None:
    by_factor = report(result(1024), program="bench")
    assert {r["op"] for r in of(tmp_path, by_factor)["bandwidths"]} == {"all_reduce"}
    unclear = report(result(1024, 11.25, redop="none"), program="bench")
    assert {r["op"] for r in of(tmp_path, unclear)["bandwidths"]} == {None}
    assert {r["op"] for r in of(tmp_path, unclear, "alltoall.json")["bandwidths"]} == {"all_to_all"}


def test_one_host_is_named_and_cpu_times_and_wrong_results_are_read(tmp_path: Path) -> None:
    one = {"cpu_time": "12.5", "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": "3"}
    found = of(tmp_path, report(result(1024, out_of_place=one, in_place=None), hosts=1))
    (row,) = found["bandwidths"]
    assert (row["dur_ns"], row["node_count"], found["files"][0]["host"]) == (12_500, 1, "node-0")
    assert found["quality"][0]["problem"] == "inconsistent_state"


def test_split_communicators_count_their_own_ranks(tmp_path: Path) -> None:
    document = json.loads(report(result(1024)))
    for i, device in enumerate(document["config"]["devices"]):
        device["group"] = i % 2
    row = of(tmp_path, json.dumps(document))["bandwidths"][0]
    assert row["group_size"] == 2 and row["node_count"] is None
