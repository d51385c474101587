"""host-faults: what the kernel log says about a device."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, outcome, quiet, tables, turns_exactly_at


def job(**fault: Any) -> Tables:
    row = {
        "host": "node12", "kind": "xid", "code": 74, "place": "0000:1b:00", "blame": "device", "severity": "critical",
        "meaning": "an NVLink error", "detail": "Xid (PCI:0000:1b:00): 74", "messages_count": 3, "corrected": False,
        "line": 9, **fault,
    }  # fmt: skip
    return tables(host_faults=[row])


def fires() -> Tables:
    return job()


def test_names_host_and_device() -> None:
    found = finding("host-faults", fires())
    assert (found.hosts, found.severity, found.evidence["code"]) == (("node12",), "critical", 74)
    assert "node12, 0000:1b:00: Xid 74, 3 times: an NVLink error" in found.summary


def test_what_the_program_did_is_told_without_alarm() -> None:
    assert finding("host-faults", job(code=31, blame="program", severity="info")).severity == "info"


def test_thresholds() -> None:
    turns_exactly_at("host-faults", fires(), min_events_count=3)
    turns_exactly_at("host-faults", job(corrected=True, messages_count=50), min_corrected_count=50)


def test_a_few_corrected_errors_are_ordinary() -> None:
    quiet("host-faults", job(kind="pcie_error", corrected=True, messages_count=20))


def test_without_a_kernel_log_it_is_no_clear() -> None:
    assert outcome("host-faults", tables(host_faults=[])).status == "skipped"
