"""expert-parallel-crosses-nodes: a fault only where its traffic is exposed and nodes are known."""

from __future__ import annotations

import pytest

from tests.rules.build import MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def group(size=16, nodes=2, dim="ep", **more):
    return {
        "group": "g",
        "size": size,
        "ranks": list(range(size)),
        "dim": dim,
        "dim_source": "description",
        "node_count": nodes,
        "fewest_node_count": 2,
        "per_node_count": nodes and size // nodes,
        **more,
    }


def job(*groups, dim="ep", settings=()):
    """A step of 100 ms; rank 0 waits 20 ms of its 30 ms, rank 1 nothing of its 10 ms."""
    rows = [
        call("all_to_all", 30 * MS, dim=dim, group="g", wait_ns=20 * MS, transfer_ns=10 * MS, exposed_wait_ns=20 * MS),
        call("all_to_all", 12 * MS, rank=1, dim=dim, group="g", wait_ns=0, transfer_ns=12 * MS, exposed_wait_ns=0),
    ]
    made = [
        step(rank=r, compute_ns=(70, 88)[r] * MS, comm_ns=(10, 12)[r] * MS, wait_ns=(20, 0)[r] * MS) for r in (0, 1)
    ]
    return tables(groups=list(groups), collectives=rows, spans=spans(*made), settings=list(settings))


def fires():
    """One rank, whose waiting cannot be told from its transfer."""
    made = call("all_to_all", 10 * MS, dim="ep", group="g")
    return tables(
        groups=[group()], collectives=[made], spans=spans(step(compute_ns=90 * MS, comm_ns=10 * MS)), settings=[]
    )


def test_fires_where_it_crosses_and_counts_transfer_only():
    found = finding("expert-parallel-crosses-nodes", job(group()))
    assert found.lost_ns == 10 * MS and found.evidence["node_count"] == 2 and found.confidence_ratio == 1.0


def test_quiet_inside_a_node_or_a_rack_scale_domain():
    quiet("expert-parallel-crosses-nodes", job(group(nodes=1)))
    rack = {"key": "cluster.fast_domain", "value": "72"}
    quiet("expert-parallel-crosses-nodes", job(group(), settings=[rack]))
    assert finding("expert-parallel-crosses-nodes", job(group(), settings=[{**rack, "value": "8"}])).lost_ns == 10 * MS


@pytest.mark.parametrize("nodes", [None, 2])
def test_does_not_answer_without_nodes_or_names(nodes):
    unnamed = group(nodes=nodes, dim="other", dim_source="unknown")
    result = outcome("expert-parallel-crosses-nodes", job(unnamed, dim="other"))
    assert result.status == "skipped" and "needed:" in result.reason


def test_exactly_at_the_threshold():
    turns_exactly_at("expert-parallel-crosses-nodes", fires(), min_share_ratio=0.1)
    assert finding("expert-parallel-crosses-nodes", fires(), critical_share_ratio=0.1).severity == "warning"
    assert finding("expert-parallel-crosses-nodes", fires(), critical_share_ratio=0.099).severity == "critical"
