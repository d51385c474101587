"""Measured transfer beside what links should give; unknown links give no expectation."""

from __future__ import annotations

import pytest

from diagnose.analyses.link_expectations import link_expectations
from tests.rules.build import MIB, table

MS = 1_000_000


def rows(*, gpu="NVIDIA H100 80GB HBM3", nodes=1, network=None, transfer_ns=MS, bound="measured", size=64 * MIB):
    ranks = list(range(8))
    calls = [
        {
            "match": n, "rank": r, "group": "g", "dim": "dp", "op": "all_reduce", "size_bytes": size,
            "transfer_ns": transfer_ns + (r > 0), "busbw_bytes_per_s": size * 1.75 / transfer_ns * 1e9,
            "bandwidth_bound": bound,
        }
        for n in range(3)
        for r in ranks
    ]  # fmt: skip
    group = {"group": "g", "ranks": ranks, "size": 8, "dim": "dp", "node_count": nodes}
    group["per_node_count"] = nodes and 8 // nodes
    settings = [{"key": "cluster.inter_bytes_per_s", "value": str(network)}] if network else []
    return link_expectations(
        table("collectives", calls), table("groups", [group]), table("files", [{"file": 0, "gpu": gpu}]),
        table("settings", settings),
    ).to_pylist()  # fmt: skip


def test_a_node_of_known_gpus_has_an_expectation_with_its_source():
    (row,) = rows()
    assert row["calls_count"] == 3 and row["transfer_ns"] == MS and row["link"] == "inside a node"
    assert 200e9 < row["expected_busbw_bytes_per_s"] < 480e9, "between small-message and in-switch figures"
    assert row["of_expected_ratio"] == pytest.approx(row["busbw_bytes_per_s"] / row["expected_busbw_bytes_per_s"])
    assert "H100" in row["source"]


@pytest.mark.parametrize(
    "unknown", [{"gpu": "Imaginary GPU"}, {"nodes": None}, {"nodes": 2}, {"nodes": 2, "network": "fast"}]
)
def test_what_is_not_known_gives_none(unknown):
    (row,) = rows(**unknown)
    assert row["expected_busbw_bytes_per_s"] is None and row["source"] is None and row["busbw_bytes_per_s"] > 0


def test_across_nodes_the_jobs_own_network_counts():
    (row,) = rows(nodes=2, network=48e9)
    assert row["expected_busbw_bytes_per_s"] < 200e9 and "cluster.inter_bytes_per_s" in row["source"]


def test_lower_bounds_are_never_compared():
    assert rows(bound="lower") == []
