"""Mistakes of communication analysis that users reported in public, and the right values. Inputs: tests/cases/B*/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import ask, perturb
from tests.perturb import ALL, Variant

each = pytest.mark.parametrize("variant", ALL, ids=perturb.names(ALL))
each_with_known_names = pytest.mark.parametrize(
    "variant", [v for v in ALL if not v.other_nccl], ids=perturb.names(v for v in ALL if not v.other_nccl)
)
"""For cases whose kernel names are the point."""


def diagnose(case: str, folder: Path, variant: Variant, only: str = "") -> Any:
    return ask.run(*[p for p in perturb.write(ask.CASES / case, folder, variant) if only in p.name])


def per_s(bytes_per_s: float, variant: Variant) -> Any:
    return pytest.approx(bytes_per_s / float(variant.scale), rel=1e-6)


@each
def test_b01_nccl_names_over_the_years(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B01", tmp_path, variant)
    step = ask.parts(diagnosis, variant.step(0))
    assert (step["comm"], step["compute"]) == (variant.ns(800), variant.ns(100))
    assert len(ask.rows(diagnosis, "kernels", **{"class": "comm"})) == 8
    operations = [row["op"] for row in ask.rows(diagnosis, "collectives")]
    assert operations.count("all_reduce") == 5
    assert operations.count("reduce_scatter") == 1
    assert set(operations) == {"all_reduce", "reduce_scatter", "unknown"}


@each
def test_b02_sync_records_are_no_work(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B02", tmp_path, variant)
    step = ask.parts(diagnosis, variant.step(0))
    assert (step["comm"], step["compute"], sum(step.values())) == (variant.ns(500), variant.ns(500), variant.ns(1500))
    assert diagnosis.step_time["hidden_comm_ratio"] == 0
    assert diagnosis.step_time["comm_share_ratio"] == pytest.approx(0.5)


@each_with_known_names
def test_b04_collectives_that_bypass_nccl(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B04", tmp_path, variant)
    calls = ask.rows(diagnosis, "collectives")
    assert len(calls) == 6
    assert sum(row["dur_ns"] for row in calls) == variant.ns(60)
    assert [row["op"] for row in sorted(calls, key=lambda row: row["ts_ns"])][:5] == ["all_reduce"] * 5
    assert {row["size_bytes"] for row in calls} == {row["busbw_bytes_per_s"] for row in calls} == {None}
    assert ask.parts(diagnosis, variant.step(0))["compute"] == variant.ns(100)


@each
def test_b07_size_and_group_come_from_the_host_record(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B07", tmp_path, variant)
    known, unknown = sorted(ask.rows(diagnosis, "collectives"), key=lambda row: row["ts_ns"])
    assert (known["op"], known["size_bytes"], known["group_size"]) == ("all_reduce", 2 << 20, 8)
    assert known["algbw_bytes_per_s"] == per_s(10.48576e9, variant)
    assert (unknown["size_bytes"], unknown["group_size"], unknown["algbw_bytes_per_s"]) == (None, None, None)
    assert ask.problems(diagnosis)["no_collective_record"] == 1


@each
def test_b08_a_batched_send_recv_has_no_size(variant: Variant, tmp_path: Path) -> None:
    (call,) = ask.rows(diagnose("B08", tmp_path, variant), "collectives")
    assert (call["op"], call["size_bytes"], call["busbw_bytes_per_s"]) == ("p2p", None, None)
    assert call["dur_ns"] == variant.ns(4000)


@each
def test_b09_a_cut_list_of_ranks_does_not_change_the_group_size(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B09", tmp_path, variant)
    calls = ask.rows(diagnosis, "collectives")
    assert [row["group_size"] for row in calls] == [64, 64]
    for row in calls:
        assert row["busbw_bytes_per_s"] == per_s((2 << 20) / 100e-6 * 2 * 63 / 64, variant)
    (group,) = ask.rows(diagnosis, "groups", group="0")
    assert group["size"] == 64
    assert group["ranks"] == list(range(64)), "distributedInfo holds the whole list"


@each
def test_b13_broadcasts_of_one_coalesced_group_are_an_all_gather(variant: Variant, tmp_path: Path) -> None:
    (call,) = ask.rows(diagnose("B13", tmp_path, variant, "group"), "collectives")
    assert (call["op"], call["dur_ns"]) == ("all_gather", variant.ns(600))
    assert call["size_bytes"] in (None, 4000), "1000 elements over the four roots, or unknown"


@each
def test_b13_a_coalesced_kernel_has_the_size_of_all_its_tensors(variant: Variant, tmp_path: Path) -> None:
    (call,) = ask.rows(diagnose("B13", tmp_path, variant, "coalesced"), "collectives")
    assert call["op"] == "all_reduce"
    assert call["size_bytes"] in (None, 24_000), "6000 float32, or unknown; never one tensor alone"


@each
def test_b16_overlap_is_counted_on_unions(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B16", tmp_path, variant)
    step = ask.parts(diagnosis, variant.step(0))
    assert (step["compute"], step["comm"], step["all_idle"]) == tuple(map(variant.ns, (600, 300, 100)))
    assert diagnosis.step_time["hidden_comm_ratio"] == pytest.approx(0.4)


@each_with_known_names
def test_b18_bus_bandwidth_above_the_link_is_no_error(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B18", tmp_path, variant)
    (call,) = ask.rows(diagnosis, "collectives")
    assert call["busbw_bytes_per_s"] == per_s(939.524096e9, variant)
    assert "impossible" not in " ".join(ask.words(f) for f in diagnosis.findings).lower()
    assert "low-bus-bandwidth" not in ask.found(diagnosis)
    assert "impossible_duration" not in ask.problems(diagnosis)


@each
def test_b19_the_kernel_is_the_transfer_not_the_host_operator(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B19", tmp_path, variant)
    (call,) = ask.rows(diagnosis, "collectives")
    assert (call["dur_ns"], call["hidden_ns"], call["exposed_ns"]) == (variant.ns(4000), variant.ns(4000), 0)
    assert diagnosis.step_time["hidden_comm_ratio"] == 1
    assert "comm-share" not in ask.found(diagnosis)


@each
def test_b20_libraries_of_other_vendors(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B20", tmp_path, variant)
    step = ask.parts(diagnosis, variant.step(0))
    assert (step["comm"], step["compute"], step["unclassified"]) == (variant.ns(70), 0, 0)
    assert len(ask.rows(diagnosis, "collectives")) == 7
