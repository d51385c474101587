"""Predicted against measured memory: over, short or within the unknown, at the moment that matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diagnose
from diagnose._memory_compared import compared
from diagnose.report import memory as section
from diagnose.report._blocks import Grid

PREDICTED = {"parameters": 100.0, "gradients": 50.4, "optimizer": 300.0, "activations": 200.0, "comm_buffers": 40.0,
             "non_torch": 10.0, "fragmentation": 0.0}  # fmt: skip


def row(part: str, size: int, moment: str = "peak", rank: int = 0, whole: bool | None = True) -> dict[str, Any]:
    return {"part": part, "bytes": size, "moment": moment, "rank": rank, "device": 0, "whole": whole}


def differences(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    found = compared(rows, PREDICTED)
    assert found is not None
    return {part["part"]: part["difference_bytes"] for part in found["parts"]}


def test_over_short_and_within_the_unknown() -> None:
    rows = [row("parameters", 130), row("optimizer", 200), row("activations", 195), row("gradients", 50)]
    found = compared([*rows, row("unknown", 20), row("fragmentation", 70)], PREDICTED)
    assert found is not None
    assert differences([*rows, row("unknown", 20), row("fragmentation", 70)]) == {
        "parameters": 30,  # surely more
        "gradients": None,  # as predicted, or more
        "optimizer": -80,  # short even if all of the unknown were optimizer state
        "activations": None,  # 5 short, 20 unknown
        "comm_buffers": -20,
        "fragmentation": None,
    }
    assert (found["predicted_bytes"], found["measured_bytes"], found["unknown_bytes"]) == (690, 665, 20)


def test_nothing_unknown_leaves_exact_differences() -> None:
    assert differences([row("parameters", 100), row("gradients", 20)]) == {
        "parameters": 0, "gradients": -30, "optimizer": -300, "activations": -200, "comm_buffers": -40,
    }  # fmt: skip


def test_memory_outside_pytorch_counts_where_it_was_recorded() -> None:
    with_it = compared([row("parameters", 100), row("non_torch", 25)], PREDICTED)
    assert with_it is not None and with_it["predicted_bytes"] == 700
    assert differences([row("parameters", 100), row("non_torch", 25)])["non_torch"] == 15


def test_the_failure_of_the_fullest_device_is_compared() -> None:
    rows = [row("parameters", 900), row("parameters", 500, "oom", 1), row("parameters", 400, "oom", 2)]
    found = compared([*rows, row("parameters", 10**6, "end")], PREDICTED)
    assert found is not None and (found["moment"], found["rank"]) == ("oom", 1)
    assert compared([row("parameters", 5, whole=False), row("parameters", 5, "end")], PREDICTED) is None


JOB = """
[model]
layers = 2
hidden = 512
heads = 8
ffn = 2048
vocab = 1000
seq_len = 128
[train]
micro_batch = 1
global_batch = 1
[cluster]
gpu = "A100-SXM4-80GB"
gpus = 1
"""


def test_a_diagnosis_with_a_job_shows_it(tmp_path: Path) -> None:
    counters = {"allocated_bytes.all.current": 3 << 30, "allocated_bytes.all.peak": 5 << 30}
    (tmp_path / "rank_0.json").write_text(json.dumps(counters))
    (tmp_path / "job.toml").write_text(JOB)
    found = diagnose.run(tmp_path / "rank_0.json", job=tmp_path / "job.toml")
    assert found.plan is not None, found.plan_reason
    table = found.plan["memory_compared"]
    assert table["measured_bytes"] == table["unknown_bytes"] == 5 << 30
    assert all(part["difference_bytes"] is None for part in table["parts"])  # nothing was told apart
    drawn = section.section(found, found.tables)
    assert drawn is not None
    (grid,) = [b for b in drawn.blocks if isinstance(b, Grid) and b.title == "Predicted against measured"]
    assert "could not be told apart" in grid.more and grid.rows[0][3] == "within the unknown"
