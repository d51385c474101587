"""What NCCL's benchmark, profiler and RAS service leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnose.ingest import Source, read

DEVICES = [
    f"#  Rank {i:2d} Group  0 Pid {70 + i} on node-{i // 2} device {i % 2} [0000:06:00] NVIDIA H100" for i in range(4)
]
HEADER = "#   size   count   type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
ROW = " 26843545600  6710886400   float     sum      -1  1793105  14.97  22.46      0  1789162  15.00  22.50      0"


def of(tmp_path: Path, *lines: str, name: str = "bench.log") -> dict[str, Any]:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    found = read(Source(str(path)))
    return {table: rows.to_pylist() for table, rows in found.items()}


def test_a_line_is_two_results(tmp_path: Path) -> None:
    first, second = of(tmp_path, *DEVICES, HEADER, ROW)["bandwidths"]
    assert (first["op"], first["size_bytes"], first["dtype"]) == ("all_reduce", 26843545600, "float32")
    assert (first["group_size"], first["node_count"], first["dur_ns"]) == (4, 2, 1_793_105_000)
    assert first["busbw_bytes_per_s"] == pytest.approx(22.46e9)
    assert [first["placement"], second["placement"]] == ["out_of_place", "in_place"]


@pytest.mark.parametrize("header, row", [
    (HEADER.replace("#wrong", "error"), ROW.replace("      0", "    N/A")),
    (HEADER + " timestamp", ROW + " 2026-01-02 03:04:05"),
    (HEADER.replace(" root", ""), ROW.replace("  -1", "")),
    (HEADER, ROW.replace("     sum", "")),
    ("[1,0]<stdout>:" + HEADER, "[1,0]<stdout>:" + ROW),
    (" 0: " + HEADER, " 0: " + ROW),
])  # fmt: skip
def test_columns_of_many_releases(header: str, row: str, tmp_path: Path) -> None:
    found = of(tmp_path, *DEVICES, header, row)["bandwidths"]
    assert [r["busbw_bytes_per_s"] for r in found] == [pytest.approx(22.46e9), pytest.approx(22.5e9)]


def test_the_program_or_the_file_names_the_operation_where_columns_leave_two(tmp_path: Path) -> None:
    row = ROW.replace("sum", "none").replace("22.46", "11.23").replace("22.50", "11.25")
    assert {r["op"] for r in of(tmp_path, *DEVICES, HEADER, row)["bandwidths"]} == {None}
    assert {r["op"] for r in of(tmp_path, "+ ./alltoall_perf -b 8", *DEVICES, HEADER, row)["bandwidths"]} == {
        "all_to_all"
    }
    assert {r["op"] for r in of(tmp_path, *DEVICES, HEADER, row, name="nccl_allgather.log")["bandwidths"]} == {
        "all_gather"
    }


@pytest.mark.parametrize("name, op", [
    ("nccl_allreduce", "all_reduce"), ("nccl_allgather", "all_gather"), ("nccl_alltoall", "all_to_all"),
    ("nccl_broadcast", "broadcast"), ("nccl_reducescatter", "reduce_scatter"), ("nccl_reduce", "reduce"),
])  # fmt: skip
def test_public_results(name: str, op: str, corpus: Path) -> None:
    found = read(Source(str(corpus / "superbenchmark/tests/data" / f"{name}.log")))["bandwidths"].to_pylist()
    assert (len(found), {row["op"] for row in found}) == (68 if op != "all_reduce" else len(found), {op})
    assert all(row["group_size"] == 8 for row in found)


RECORD = {
    "header": {"id": "0x7f8c", "rank": 2, "n_ranks": 8, "nnodes": 1},
    "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": 7},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974,
                  "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 277.2, "coll_busbw_gbs": 485.1},
}  # fmt: skip


def test_inspector(tmp_path: Path) -> None:
    found = of(tmp_path, json.dumps(RECORD), json.dumps(RECORD)[:90], name="h-pid7.log")
    (row,) = found["bandwidths"]
    assert (row["op"], row["seq"], row["group"], row["group_size"]) == ("all_reduce", 1407, "0x7f8c", 8)
    assert (row["dur_ns"], row["busbw_bytes_per_s"]) == (61_974_000, pytest.approx(485.1e9))
    assert (found["files"][0]["status"], found["files"][0]["host"]) == ("repaired", "h")


def test_ras_json_with_the_missing_comma(tmp_path: Path) -> None:
    report = """{"nccl_version": "2.28.7", "communicators_count": 1, "communicators": [{"hash": "0xab", "size": 2,
      "ranks": [{"rank": 0, "host": "a", "pid": 1, "cuda_dev": 0, "status": {"init_state": 0, "async_error": 0}}],
      "missing_ranks": [{"rank": 1, "host": "b", "pid": 2, "cuda_dev": 3, "nvml_dev": 3
        "status": {"unresponsive": true, "considered_dead": true}}]}]}"""
    found = of(tmp_path, report, name="ras.json")
    (comm,) = found["communicators"]
    assert (comm["comm"], comm["comm_rank"], comm["size"], comm["state"]) == ("0xab", 0, 2, "complete")
    (event,) = found["log_events"]
    assert (event["kind"], event["host"], event["process"]) == ("ras_missing", "b", 2)
    assert "considered dead" in event["detail"]
    assert found["quality"][0]["problem"] == "repaired_event"


def test_ras_text(tmp_path: Path) -> None:
    report = """NCCL version 2.27.3 compiled with CUDA 12.9

Job summary
===========
Communicators... (0.00s)
=============
Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 job process
  The missing rank: 21
    Rank 21 -- GPU 5 managed by process 487 on node 172.16.64.212

Warnings
========
"""
    (event,) = of(tmp_path, report, name="ras.txt")["log_events"]
    assert (event["kind"], event["host"], event["process"], event["level"]) == (
        "ras_missing",
        "172.16.64.212",
        487,
        "ERROR",
    )
    assert event["detail"].startswith("rank 21 of communicator cf264af53edbe986")
