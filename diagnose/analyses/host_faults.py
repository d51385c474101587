"""Faults of hosts that their kernel logs name: GPU errors by number (Xid), switches, PCIe, ports, memory, CPUs.

An Xid says what the driver saw, not always what is broken: 13, 31 and 43 are usually the program's own (an illegal
address), 45 only says that a channel was cleaned up after something else. Those that name the device (memory, NVLink,
bus, firmware) make it slow or unusable and seldom go away by themselves. A port that went down interrupts traffic; a
corrected PCIe error is repeated traffic.
Source: NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors), catalogue of 2025.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pyarrow as pa

from diagnose.schema import BOOL, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "kind of fault of one device of a host, from its kernel log",
    ("host", TEXT, "host name, where the log says it"),
    ("kind", LABEL, "xid | sxid | pcie_error | port_down | memory_error | cpu_throttled | process_killed"),
    ("code", INT32, "number of an Xid or SXid"),
    ("place", TEXT, "PCI address, CPU or memory controller, as printed"),
    ("blame", LABEL, "device (broken or wearing out) | program | consequence (of another fault) | unknown"),
    ("severity", LABEL, "critical | warning | info"),
    ("meaning", TEXT, "what it says, in words"),
    ("detail", TEXT, "the first message"),
    ("messages_count", INT64, "messages alike"),
    ("corrected", BOOL, "the device mended it itself: a few of them are ordinary"),
    ("line", INT64, "line of the first"),
)


class _Meaning(NamedTuple):
    blame: str
    severity: str
    text: str


XIDS = {
    13: _Meaning("program", "info", "a kernel of the program failed (often an address out of range)"),
    31: _Meaning("program", "info", "the program touched memory that is not mapped"),
    43: _Meaning("program", "info", "a channel was reset after an error of the program"),
    45: _Meaning("consequence", "info", "channels were cleaned up after another error"),
    48: _Meaning("device", "critical", "an uncorrectable (double-bit) error in GPU memory"),
    61: _Meaning("device", "warning", "a micro-controller of the GPU hit a breakpoint"),
    62: _Meaning("device", "critical", "a micro-controller of the GPU halted"),
    63: _Meaning("device", "warning", "a row of GPU memory was remapped; a reset is needed to make it take effect"),
    64: _Meaning("device", "critical", "remapping a row of GPU memory failed"),
    74: _Meaning("device", "critical", "an NVLink error: the link is retrained or lost"),
    79: _Meaning("device", "critical", "the GPU fell off the bus"),
    92: _Meaning("device", "warning", "many corrected errors in GPU memory"),
    94: _Meaning("device", "warning", "an uncorrectable memory error that was contained to one program"),
    95: _Meaning("device", "critical", "an uncorrectable memory error that was not contained"),
    119: _Meaning("device", "critical", "the GPU's firmware (GSP) no longer answers"),
    120: _Meaning("device", "critical", "the GPU's firmware (GSP) failed"),
    121: _Meaning("device", "warning", "an error of the link between CPU and GPU, corrected"),
    140: _Meaning("device", "critical", "an unrecovered error in GPU memory"),
    145: _Meaning("device", "critical", "an NVLink error that was not recovered"),
}
OTHERS = {
    "sxid": _Meaning("device", "warning", "an error of an NVSwitch"),
    "pcie_error": _Meaning("device", "warning", "errors on the PCIe bus: traffic is repeated or lost"),
    "port_down": _Meaning("device", "critical", "a network port went down"),
    "memory_error": _Meaning("device", "warning", "errors in the host's memory"),
    "cpu_throttled": _Meaning("device", "warning", "a CPU is too hot and lowers its clock"),
    "process_killed": _Meaning("program", "critical", "the kernel killed a process because the host ran out of memory"),
}
_XID = re.compile(r"S?Xid \(PCI:([^)]+)\): (\d+)")
_CORRECTED = re.compile(r"Corrected error|: \d+ CE |clock throttled|above threshold")
_PLACE = re.compile(r"pcieport ([0-9a-fA-F:.]+): |mlx\S+ ([0-9a-fA-F:.]+)|(MC\d+):|(CPU\d+):|process (\d+)")


def host_faults(log_events: pa.Table) -> pa.Table:
    """One row per host, device and kind; empty where no kernel log is among the inputs."""
    rows = [_row(row) for row in log_events.to_pylist() if row["kind"] == "xid" or row["kind"] in OTHERS]
    rows.sort(
        key=lambda row: (("critical", "warning", "info").index(row["severity"]), row["host"] or "", row["line"] or 0)
    )
    return SCHEMA.of_rows(rows)


def _row(event: dict[str, Any]) -> dict[str, Any]:
    kind, detail = event["kind"], event["detail"] or ""
    numbered = _XID.search(detail)
    code = int(numbered[2]) if numbered else None
    if kind == "xid":
        unheard = _Meaning("unknown", "warning", "see NVIDIA's catalogue of Xid errors")
        meaning = XIDS.get(code or -1, unheard)
    else:
        meaning = OTHERS[kind]
    named = _PLACE.search(detail)
    place = numbered[1] if numbered else next((g for g in named.groups() if g), None) if named else None
    return {
        "host": event["host"], "kind": kind, "code": code, "place": place, "blame": meaning.blame,
        "severity": meaning.severity, "meaning": meaning.text, "detail": detail[:300], "messages_count": event["count"],
        "corrected": bool(_CORRECTED.search(detail)),
        "line": event["line"],
    }  # fmt: skip
