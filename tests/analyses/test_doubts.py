"""What the analyses could not know is said, once per kind and rank; a whole recording gives no reason to doubt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diagnose

STEP = "ProfilerStep#{}"


def event(kind: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    device = kind == "kernel"
    return {
        "ph": "X", "cat": kind, "name": name, "pid": 0 if device else 9, "tid": 7 if device else 9,
        "ts": ts, "dur": dur, "args": {**({"device": 0, "stream": 7} if device else {}), **args},
    }  # fmt: skip


def launched(name: str, ts: float, dur: float, number: int) -> list[dict[str, Any]]:
    return [
        event("cuda_runtime", "cudaLaunchKernel", ts - 5, 2, correlation=number),
        event("kernel", name, ts, dur, correlation=number),
    ]


def doubts(tmp_path: Path, events: list[dict[str, Any]], world_size: int = 2) -> dict[str, dict[str, Any]]:
    document = {
        "schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": world_size},
    }  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    rows = diagnose.run(path).tables["doubts"].to_pylist()
    assert len({row["problem"] for row in rows}) == len(rows)
    return {row["problem"]: row for row in rows}


def steps(count: int) -> list[dict[str, Any]]:
    marks = [event("user_annotation", STEP.format(i), 1000.0 * i + 10, 990) for i in range(count)]
    return marks + [e for i in range(count) for e in launched("ampere_sgemm_128x64_nn", 1000.0 * i + 100, 800, i + 1)]


def test_a_whole_recording_gives_no_doubt(tmp_path: Path) -> None:
    assert doubts(tmp_path, steps(3)) == {}


def test_work_without_a_launch_is_said(tmp_path: Path) -> None:
    lone = [event("kernel", "ampere_sgemm_64x64_nn", 2920, 10, correlation=0)]

    assert doubts(tmp_path, steps(3) + lone)["unlinked_kernels"]["count"] == 1


def test_one_step_and_no_step_are_said(tmp_path: Path) -> None:
    unmarked = [e for e in steps(3) if e["cat"] != "user_annotation"]

    assert "one_step" in doubts(tmp_path, steps(1))
    assert "no_steps" in doubts(tmp_path, unmarked)


def test_collectives_without_their_kernels_make_communication_unknown(tmp_path: Path) -> None:
    calls = [event("user_annotation", "nccl:all_reduce", 1000.0 * i + 50, 20) for i in range(3)]

    found = doubts(tmp_path, steps(3) + calls)

    assert found["comm_kernels_missing"]["count"] == 3
    symptoms = {s.symptom: s.status for s in diagnose.run(tmp_path / "trace.json").symptoms}
    assert symptoms["comm_saturation"] == "unknown"


def test_a_group_of_one_needs_no_kernel(tmp_path: Path) -> None:
    calls = [event("user_annotation", "nccl:all_reduce", 50, 20)]

    assert "comm_kernels_missing" not in doubts(tmp_path, steps(3) + calls, world_size=1)


def test_a_kernel_of_unknown_kind_is_named(tmp_path: Path) -> None:
    strange = launched("zorp_quux", 2950, 20, 77)

    row = doubts(tmp_path, steps(3) + strange)["unclassified_kernels"]

    assert row["count"] == 1
    assert "zorp_quux" in row["detail"]
