"""Slow jobs that users reported in public, and the diagnosis they should have got. Inputs: tests/cases/D*/ and E*/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import ask, perturb
from tests.perturb import ALL, Variant

each = pytest.mark.parametrize("variant", ALL, ids=perturb.names(ALL))


def inputs(case: str, folder: Path, variant: Variant) -> dict[str, Path]:
    return {path.name: path for path in perturb.write(ask.CASES / case, folder, variant)}


def per_s(bytes_per_s: float, variant: Variant) -> Any:
    return pytest.approx(bytes_per_s / float(variant.scale), rel=1e-6)


@each
def test_d10_item_in_every_step(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(*inputs("D10", tmp_path, variant).values())
    finding = ask.finding(diagnosis, "host-sync")
    assert ask.found(diagnosis)[0] == "host-sync"
    assert variant.ns(42_500) <= finding.lost_ns <= variant.ns(52_500), "the gaps after the syncs, not the time in them"
    assert "aten::item" in ask.words(finding)
    assert len(ask.rows(diagnosis, "syncs")) == 15
    assert ask.symptom(diagnosis, "low_speedup").status == "found"


@each
def test_e09_one_hardware_queue_removes_fsdp_overlap(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(*inputs("E09", tmp_path, variant).values())
    assert ask.parts(diagnosis, variant.step(0))["comm"] == variant.ns(1600)
    assert diagnosis.step_time["hidden_comm_ratio"] == 0
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in ask.words(ask.finding(diagnosis, "unhidden-gradients"))


def test_e09_the_same_setting_is_right_for_tensor_parallelism(tmp_path: Path) -> None:
    files = inputs("E09", tmp_path, perturb.ORIGINAL)
    trace = files["trace.json"]
    trace.write_text(trace.read_text().replace("default_pg", "TENSOR_MODEL_PARALLEL_GROUP"))
    diagnosis = ask.run(*files.values())
    assert "unhidden-gradients" not in ask.found(diagnosis, ("info", "warning", "critical"))
    assert all("CUDA_DEVICE_MAX_CONNECTIONS" not in f.summary for f in diagnosis.findings)


def test_e09_without_the_setting_it_is_no_suspect(tmp_path: Path) -> None:
    files = inputs("E09", tmp_path, perturb.ORIGINAL)
    trace = files["trace.json"]
    trace.write_text(trace.read_text().replace('"CUDA_DEVICE_MAX_CONNECTIONS": "1", ', ""))
    diagnosis = ask.run(trace)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in ask.finding(diagnosis, "unhidden-gradients").summary


@each
def test_e10_exposed_on_two_nodes_and_no_cause_invented(variant: Variant, tmp_path: Path) -> None:
    files = inputs("E10", tmp_path, variant)
    single, multi = ask.run(files["single.json"]), ask.run(files["multi.json"])
    assert single.step_time["comm_share_ratio"] == 0
    assert multi.step_time["comm_share_ratio"] == pytest.approx(0.6)
    assert ask.symptom(multi, "comm_saturation").status == "found"
    (call,) = ask.rows(multi, "collectives")
    assert call["blocked_by"] in (None, "unknown"), "nothing in the file says why"
    (hidden,) = ask.rows(single, "collectives")
    assert hidden["blocked_by"] is None


@each
def test_e11_flat_sharding_across_nodes(variant: Variant, tmp_path: Path) -> None:
    files = inputs("E11", tmp_path, variant)
    diagnosis = ask.run(files["trace.json"], job=files["job.toml"])
    assert ask.symptom(diagnosis, "comm_saturation").status == "found"
    finding = ask.finding(diagnosis, "sharding-traffic")
    text = ask.words(finding)
    assert "hsdp" in text.lower() or "hybrid" in text.lower()
    assert "memory" in text.lower(), "sharding inside a node costs memory, and the fix says so"
    for row in ask.rows(diagnosis, "collectives"):
        assert row["group_size"] == 16
        assert row["busbw_bytes_per_s"] == per_s(10.48576e9, variant)
    assert [row["node_count"] for row in ask.rows(diagnosis, "groups", group="0")] == [2]


def test_e11_without_job_toml_the_node_count_is_unknown(tmp_path: Path) -> None:
    diagnosis = ask.run(inputs("E11", tmp_path, perturb.ORIGINAL)["trace.json"])
    assert [row["node_count"] for row in ask.rows(diagnosis, "groups", group="0")] == [None]


@each
def test_e14_one_huge_bucket_after_backward(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(*inputs("E14", tmp_path, variant).values())
    assert ask.parts(diagnosis, variant.step(0))["comm"] == variant.ns(15_000)
    (call,) = ask.rows(diagnosis, "collectives")
    assert call["busbw_bytes_per_s"] == per_s(250.53975893333e9, variant)
    assert {"unhidden-gradients", "coarse-buckets"} & set(ask.found(diagnosis))
    assert "low-bus-bandwidth" not in ask.found(diagnosis), "no network fault"
    assert ask.symptom(diagnosis, "comm_saturation").lost_ns <= variant.ns(15_000)
