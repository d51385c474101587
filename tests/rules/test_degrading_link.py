"""degrading-link: port events per host."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables, turns_exactly_at


def job(**link: Any) -> Tables:
    row = {"kind": "link_flap", "hosts": ["node-c"], "affected_count": 6, "devices": "4", "value": "port error", **link}
    return tables(spans=spans(step(compute_ns=50 * MS, comm_ns=50 * MS)), links=[row])


def fires() -> Tables:
    return job()


def test_names_host_events_and_gpu() -> None:
    found = finding("degrading-link", fires())
    assert (found.hosts, found.severity, found.evidence["events_count"]) == (("node-c",), "critical", 6)
    assert "GPU 4" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("degrading-link", fires(), min_events_count=6)


def test_an_unanswered_connection_alone_is_a_warning() -> None:
    assert finding("degrading-link", job(kind="link_lost")).severity == "warning"


def test_quiet_for_other_offences() -> None:
    quiet("degrading-link", job(kind="socket_fallback"))
