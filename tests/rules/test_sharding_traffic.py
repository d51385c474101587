"""sharding-traffic: exposed gathers and scatters of fully sharded data parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, call, finding, quiet, spans, step, tables, turns_exactly_at


def job(*calls: dict[str, Any], node_count: int | None = None, exposed_ns: int = 54 * MS) -> Tables:
    return tables(
        spans=spans(step(compute_ns=100 * MS - exposed_ns, comm_ns=exposed_ns)),
        collectives=list(calls),
        groups=[{"group": "dp0", "size": 16, "dim": "dp", "node_count": node_count}],
    )


def shards(gathers: int = 6, scatters: int = 3, dur_ns: int = 6 * MS, **more: Any) -> list[dict[str, Any]]:
    more = {"size_bytes": 128 * MIB, "group_size": 16, "busbw_bytes_per_s": 10.5e9, **more}
    gather = call("all_gather", dur_ns, **more)
    return [gather] * gathers + [call("reduce_scatter", dur_ns, **{"phase": "backward", **more})] * scatters


def fires() -> Tables:
    return job(*shards(), node_count=2)


def test_fires_with_the_nodes_the_rate_and_what_hybrid_sharding_costs() -> None:
    found = finding("sharding-traffic", fires())
    assert (found.lost_ns, found.evidence["node_count"], found.evidence["gathers_ratio"]) == (54 * MS, 2, 2.0)
    assert "16 ranks that spans 2 nodes" in found.summary
    assert "10.5 GB/s or better" in found.summary
    assert "HSDP" in found.fix
    assert "memory" in found.fix


def test_unknown_nodes_stay_unknown() -> None:
    found = finding("sharding-traffic", job(*shards()))
    assert "how many nodes it spans is unknown" in found.summary
    assert found.evidence["node_count"] is None


def test_inside_one_node_only_the_second_gather_can_be_saved() -> None:
    assert finding("sharding-traffic", job(*shards(), node_count=1)).lost_ns == 18 * MS


def test_quiet_exactly_at_a_fifth_of_the_step() -> None:
    quiet("sharding-traffic", job(*shards(2, 2, 5 * MS), exposed_ns=20 * MS))
    finding("sharding-traffic", job(*shards(2, 2, 5 * MS + 1), exposed_ns=20 * MS + 4))


def test_thresholds() -> None:
    turns_exactly_at("sharding-traffic", fires(), min_share_ratio=0.54, min_gathers_ratio=2.0)


def test_quiet_for_gathers_alone_or_scatters_alone() -> None:
    quiet("sharding-traffic", job(*shards(9, 0)))
    quiet("sharding-traffic", job(*shards(0, 9)))


@pytest.mark.parametrize("more", [{"dim": "tp"}, {"dim": "other", "phase": "forward"}])
def test_quiet_for_sequence_parallelism(more: dict[str, Any]) -> None:
    quiet("sharding-traffic", job(*shards(**more)))


def test_an_unnamed_group_lowers_confidence() -> None:
    assert finding("sharding-traffic", job(*shards(dim="other"))).confidence_ratio == pytest.approx(0.4)


def test_without_sizes_calls_are_counted() -> None:
    found = finding("sharding-traffic", job(*shards(size_bytes=None, busbw_bytes_per_s=None)))
    assert (found.evidence["gathers_ratio"], found.evidence["moved_bytes"]) == (2.0, None)
