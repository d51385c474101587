"""tensor- and expert-parallel-crosses-nodes: a fault only where its traffic is exposed and nodes are known."""

from __future__ import annotations

import pytest

from tests.rules.build import MS, call, finding, outcome, quiet, spans, step, turns_exactly_at
from tests.rules.crossing_rows import fires, group, job, judged

RULES = {"tp": "tensor-parallel-crosses-nodes", "ep": "expert-parallel-crosses-nodes"}
both = pytest.mark.parametrize("dim", RULES)


@both
def test_fires_where_it_crosses_and_counts_transfer_only(dim: str) -> None:
    found = finding(RULES[dim], job(dim, group(dim)))
    assert found.lost_ns == 10 * MS and found.evidence["node_count"] == 2 and found.confidence_ratio == 1.0


@both
def test_quiet_inside_a_node_or_a_rack_scale_domain(dim: str) -> None:
    quiet(RULES[dim], job(dim, group(dim, nodes=1)))
    rack = {"key": "cluster.fast_domain", "value": "72"}
    quiet(RULES[dim], job(dim, group(dim), settings=[rack]))
    assert finding(RULES[dim], job(dim, group(dim), settings=[{**rack, "value": "8"}])).lost_ns == 10 * MS


@both
def test_the_other_dimension_is_another_rules(dim: str) -> None:
    other = "ep" if dim == "tp" else "tp"
    quiet(RULES[dim], job(other, group(other), group(dim, nodes=1)))


@both
@pytest.mark.parametrize("nodes", [None, 2])
def test_does_not_answer_without_nodes_or_names(dim: str, nodes: int | None) -> None:
    result = outcome(RULES[dim], job("other", group("other", nodes=nodes, dim_source="unknown")))
    assert result.status == "skipped" and "needed:" in result.reason


@both
def test_a_communication_benchmark_is_no_training_step(dim: str) -> None:
    """Ranks that compute nothing have nothing to hide their traffic under."""
    made = call("all_reduce", 10 * MS, dim=dim, group="g")
    given = judged(groups=[group(dim)], collectives=[made], spans=spans(step(comm_ns=100 * MS)), settings=[])
    assert outcome(RULES[dim], given).status == "clear"


@both
def test_one_rank_cannot_tell_waiting_from_transfer(dim: str) -> None:
    assert finding(RULES[dim], fires(dim)).confidence_ratio == 0.5


@both
def test_exactly_at_the_threshold(dim: str) -> None:
    turns_exactly_at(RULES[dim], fires(dim), min_share_ratio=0.1)
    assert finding(RULES[dim], fires(dim), critical_share_ratio=0.1).severity == "warning"
    assert finding(RULES[dim], fires(dim), critical_share_ratio=0.099).severity == "critical"
