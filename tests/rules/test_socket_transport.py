"""socket-transport: sockets between hosts, and the variable or message that caused them."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables


def job(**link: Any) -> Tables:
    row = {"kind": "socket_fallback", "hosts": ["a", "b"], "ranks": [0, 1], "value": "Using network Socket", **link}
    return tables(spans=spans(step(compute_ns=50 * MS, comm_ns=50 * MS)), links=[row])


def fires() -> Tables:
    return job(cause="NCCL_IB_DISABLE=1")


def test_names_the_variable_and_what_else_it_turns_off() -> None:
    found = finding("socket-transport", fires())
    assert (found.severity, found.hosts, found.ranks, found.lost_ns) == ("critical", ("a", "b"), (0, 1), 0)
    assert "NCCL_IB_DISABLE=1" in found.summary
    assert "RoCE" in found.summary


def test_says_when_the_cause_is_not_known() -> None:
    assert "does not say why" in finding("socket-transport", job()).summary
    assert finding("socket-transport", job(cause="NET/IB : No device found.")).evidence["cause"]


def test_many_hosts_are_counted() -> None:
    assert "9 hosts" in finding("socket-transport", job(hosts=[f"n{i}" for i in range(9)])).summary


def test_quiet_for_other_offences() -> None:
    quiet("socket-transport", job(kind="gdr_disabled"))
