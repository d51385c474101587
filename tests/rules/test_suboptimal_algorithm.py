"""suboptimal-algorithm: forced choices, peer access, crowded cards; never from a kernel's name."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(*links: dict[str, Any]) -> Tables:
    return tables(spans=spans(step(compute_ns=50 * MS, comm_ns=50 * MS)), links=list(links))


CROWDED = {
    "kind": "nic_unbalanced", "hosts": ["a"], "affected_count": 1, "all_count": 4, "devices": "0 (mlx5_0)",
    "value": "4 GPUs share a network card",
}  # fmt: skip
FORCED = {"kind": "forced_protocol", "cause": "NCCL_PROTO=LL", "value": "LL"}


def fires() -> Tables:
    return job(CROWDED)


def test_cards() -> None:
    found = finding("suboptimal-algorithm", fires())
    assert "1 of 4 network cards" in found.summary
    turns_exactly_at("suboptimal-algorithm", fires(), max_used_ratio=0.25)


def test_half_of_the_cards_is_enough() -> None:
    quiet("suboptimal-algorithm", job({**CROWDED, "affected_count": 2}))


def test_a_forced_slow_protocol_is_a_warning_another_only_a_note() -> None:
    found = finding("suboptimal-algorithm", job(FORCED))
    assert (found.severity, "NCCL_PROTO=LL" in found.summary) == ("warning", True)
    simple = {**FORCED, "cause": "NCCL_PROTO=simple", "value": "SIMPLE"}
    assert finding("suboptimal-algorithm", job(simple)).severity == "info"


def test_peer_access_names_the_variable_first_else_the_candidates() -> None:
    row = {"kind": "p2p_disabled", "hosts": ["a"], "affected_count": 4, "all_count": 4}
    assert "NCCL_P2P_LEVEL=LOC" in finding("suboptimal-algorithm", job({**row, "cause": "NCCL_P2P_LEVEL=LOC"})).summary
    assert "ACS" in finding("suboptimal-algorithm", job(row)).summary


def test_no_answer_where_no_log_was_given() -> None:
    result = outcome("suboptimal-algorithm", job({"kind": "not_recorded"}))
    assert (result.status, "NCCL log" in result.reason) == ("skipped", True)
    finding("suboptimal-algorithm", job({"kind": "not_recorded"}, FORCED))
