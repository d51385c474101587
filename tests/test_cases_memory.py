"""Memory troubles that users reported in public, and what they should have been told. Inputs: tests/cases/C*/, D02."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import ask
from tests.snapshots import ALL, LOGS, Edit, Variant

GIB, MIB = 1 << 30, 1 << 20
each = pytest.mark.parametrize("variant", ALL, ids=[v.name for v in ALL])
each_log = pytest.mark.parametrize("edit", LOGS.values(), ids=list(LOGS))
EVERY = ("info", "warning", "critical")


def snapshot(case: str, folder: Path, variant: Variant) -> Path:
    return variant.write(ask.CASES / case / "snapshot.json", folder)


def log(case: str, name: str, folder: Path, edit: Edit) -> Path:
    target = folder / name
    target.write_text(edit((ask.CASES / case / name).read_text()))
    return target


def moment(diagnosis: Any, which: str) -> dict[str, Any]:
    (row,) = ask.rows(diagnosis, "memory_moments", moment=which)
    return row


def advice(diagnosis: Any) -> str:
    return " ".join(ask.words(f) for f in diagnosis.findings)


def parts_sum_to(diagnosis: Any, which: str, whole: int) -> None:
    parts = [m for m in diagnosis.memory if m["moment"] == which]
    assert sum(m["bytes"] for m in parts) == whole, parts


@each
def test_c01_fragmentation(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(snapshot("C01", tmp_path, variant))
    finding = ask.finding(diagnosis, "fragmentation")
    assert ask.found(diagnosis) == ["fragmentation"]
    assert finding.evidence["stranded_bytes"] == 3600 * MIB * variant.scale
    assert finding.evidence["largest_hole_bytes"] == 90 * MIB * variant.scale
    assert finding.evidence["tried_bytes"] == 512 * MIB * variant.scale
    assert finding.evidence["pinned_count"] == 40 and "layer_act" in finding.evidence["pinned_by"]
    assert "expandable_segments" in finding.fix and "max_split_size" in finding.fix
    parts_sum_to(diagnosis, "oom", 8048 * MIB * variant.scale)
    assert ask.symptom(diagnosis, "oom_despite_headroom").status == "found"


@each_log
def test_c01_the_message_alone_and_both_together(edit: Edit, tmp_path: Path) -> None:
    message = log("C01", "oom.log", tmp_path, edit)
    assert ask.found(ask.run(message)) == ["fragmentation"]
    both = ask.run(message, ask.CASES / "C01" / "snapshot.pickle")
    joined = moment(both, "oom")
    assert joined["source"] == "snapshot, message" and joined["largest_hole_bytes"] == 90 * MIB
    assert joined["capacity_bytes"] == 8 * GIB
    parts_sum_to(both, "oom", 8 * GIB - 100 * MIB)
    assert len(ask.rows(both, "memory_moments", moment="oom")) == 1


def test_c01_with_the_trace_of_the_same_rank(tmp_path: Path) -> None:
    (tmp_path / "rank0_trace.json").write_bytes((ask.CASES / "B02" / "trace.json").read_bytes())
    (tmp_path / "rank0_snapshot.pickle").write_bytes((ask.CASES / "C01" / "snapshot.pickle").read_bytes())
    log("C01", "oom.log", tmp_path, lambda text: f"[rank0]: {text}")
    diagnosis = ask.run(tmp_path)
    row = moment(diagnosis, "oom")
    assert (row["rank"], row["source"], row["capacity_bytes"]) == (0, "snapshot, message", 8 * GIB)
    assert ask.finding(diagnosis, "fragmentation").ranks == (0,)
    assert {f["run"] for f in ask.rows(diagnosis, "files")} == {0}
    parts_sum_to(diagnosis, "oom", 8 * GIB - 100 * MIB)


@each_log
def test_c02_full_although_the_hint_says_otherwise(edit: Edit, tmp_path: Path) -> None:
    diagnosis = ask.run(log("C02", "oom.log", tmp_path, edit))
    assert ask.found(diagnosis) == ["near-limit"]
    assert "expandable_segments" not in advice(diagnosis)
    assert moment(diagnosis, "oom")["expandable"] is True
    assert moment(diagnosis, "oom")["unallocated_bytes"] == 46 * MIB


@each_log
def test_c04_more_than_could_ever_be_freed(edit: Edit, tmp_path: Path) -> None:
    diagnosis = ask.run(log("C04", "oom.log", tmp_path, edit))
    found = {f.evidence["tried_bytes"]: f for f in diagnosis.findings if f.rule == "oversized-request"}
    assert len(found) == 2
    assert found[round(22.4 * GIB)].evidence["recoverable_bytes"] == pytest.approx(22 * GIB, rel=1e-6)
    assert {"fragmentation", "non-torch-memory"}.isdisjoint(ask.found(diagnosis, EVERY))
    assert "chunk" in found[16 * GIB].fix


@each_log
def test_c05_a_neighbour(edit: Edit, tmp_path: Path) -> None:
    diagnosis = ask.run(log("C05", "oom.log", tmp_path, edit))
    finding = ask.finding(diagnosis, "non-torch-memory")
    assert ask.found(diagnosis) == ["non-torch-memory"]
    assert finding.evidence["other_process"] == 77 and "48.9 GiB" in finding.summary


@each_log
def test_c05_old_wording(edit: Edit, tmp_path: Path) -> None:
    diagnosis = ask.run(log("C05", "old.log", tmp_path, edit))
    row = moment(diagnosis, "oom")
    assert row["reserved_bytes"] == round(4.1 * GIB) and row["allocated_bytes"] == 4 * GIB
    assert row["unaccounted_bytes"] == pytest.approx(1.43 * GIB, rel=0.002)
    assert ask.found(diagnosis) == ["non-torch-memory"]
    parts_sum_to(diagnosis, "oom", 6 * GIB - 480 * MIB)


def test_c07_nccl_fails_beside_a_big_cache() -> None:
    folder = ask.CASES / "C07"
    diagnosis = ask.run(folder / "nccl.log", folder / "steps.jsonl")
    finding = ask.finding(diagnosis, "non-torch-memory")
    assert ask.found(diagnosis)[0] == "non-torch-memory"
    assert finding.evidence["allocated_bytes"] == 57 * GIB and finding.evidence["reserved_bytes"] == 113 * GIB
    assert "NCCL" in finding.summary and "memory_fraction" in finding.fix and "expandable" not in finding.fix
    assert {"near-limit", "activations-dominate", "state-dominates"}.isdisjoint(ask.found(diagnosis, EVERY))


@each
def test_c09_a_graph_that_is_kept(variant: Variant, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (ask.CASES / "C09" / "steps.jsonl").read_text().splitlines()]
    steps = tmp_path / "steps.jsonl"
    names = ("allocated_gib", "reserved_gib", "max_allocated_gib")
    rank = 3 if variant.file_name.endswith("rank3") else 0
    changed = [
        row | {name: row[name] * variant.scale for name in names} | {"step": row["step"] + 100, "rank": rank}
        for row in rows
    ]
    steps.write_text("".join(json.dumps(row) + "\n" for row in changed))
    diagnosis = ask.run(steps, snapshot("C09", tmp_path, variant))
    finding = ask.finding(diagnosis, "memory-creep")
    assert ask.found(diagnosis) == ["memory-creep"]
    assert finding.evidence["slope_bytes"] == pytest.approx(0.15 * GIB * variant.scale, rel=0.01)
    assert "train.py:88" in finding.summary and "detach" in finding.fix
    assert {"fragmentation", "fragmentation-growth"}.isdisjoint(ask.found(diagnosis, EVERY))


def test_c10_lazy_state_is_no_leak() -> None:
    fresh = ask.run(ask.CASES / "C10" / "fresh.jsonl")
    assert ask.found(fresh) == []
    finding = ask.finding(fresh, "lazy-optimizer-state")
    assert finding.evidence["jump_bytes"] == 28 * GIB and finding.evidence["jump_step"] == 1
    resumed = ask.run(ask.CASES / "C10" / "resume.jsonl")
    assert ask.found(resumed) == ["lazy-optimizer-state"]
    assert "memory-creep" not in ask.found(resumed, EVERY)


def test_c13_a_cache_that_stays_is_no_leak() -> None:
    diagnosis = ask.run(ask.CASES / "C13" / "runs.jsonl")
    assert {"memory-creep", "fragmentation-growth"}.isdisjoint(ask.found(diagnosis, EVERY))


@each_log
def test_c14_the_asynchronous_allocator(edit: Edit, tmp_path: Path) -> None:
    diagnosis = ask.run(log("C14", "oom.log", tmp_path, edit))
    row = moment(diagnosis, "oom")
    assert row["allocated_bytes"] == round(53.2 * GIB) and row["tried_bytes"] == 700 * MIB
    assert row["unaccounted_bytes"] == pytest.approx(25.87 * GIB, rel=0.001)
    assert row["limit_bytes"] is None, "2^34 GiB is no limit"
    assert ask.found(diagnosis) == ["allocator-settings"]
    assert "snapshots do not cover" in ask.finding(diagnosis, "allocator-settings").summary


@each
def test_c15_history_that_overflowed(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(snapshot("C15", tmp_path, variant))
    assert ask.problems(diagnosis)["incomplete_history"] >= 1
    live = [row["allocated_bytes"] for row in ask.rows(diagnosis, "memory")]
    assert max(live) == live[-1] == 5120 * MIB * variant.scale
    assert min(live) >= 0
    assert ask.found(diagnosis) == []


@each
def test_c17_a_peak_that_checkpointing_does_not_reach(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(snapshot("C17", tmp_path, variant))
    finding = ask.finding(diagnosis, "transient-peak")
    assert "compute_loss_logits" in finding.summary
    assert finding.evidence["held_bytes"] == 9728 * MIB * variant.scale
    assert finding.evidence["rest_bytes"] == 2048 * MIB * variant.scale
    assert "activations-dominate" not in ask.found(diagnosis, EVERY), "it would advise more checkpointing"
    assert diagnosis.questions[2]["answer"] == "no"


@each
def test_c18_expandable_segments(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(snapshot("C18", tmp_path, variant))
    end = moment(diagnosis, "end")
    assert end["reserved_bytes"] == 22 * GIB * variant.scale and end["allocated_bytes"] == 20 * GIB * variant.scale
    assert end["largest_hole_bytes"] == 2 * GIB * variant.scale
    assert ask.problems(diagnosis)["unknown_action"] == 1
    assert ask.found(diagnosis) == []


@each_log
def test_d02_cache_flushes(edit: Edit, tmp_path: Path) -> None:
    diagnosis = ask.run(log("D02", "train.log", tmp_path, edit))
    finding = ask.finding(diagnosis, "allocator-retries")
    assert finding.evidence["flushes_count"] == 12 and "10 warnings" in finding.summary
    assert "empty_cache" in finding.fix
