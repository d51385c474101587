"""Lines of the kernel log (dmesg, journalctl -k, syslog) that say why a GPU, a link or a host is slow or gone.

Xid (NVIDIA's driver), SXid (NVSwitch), PCIe error reports, network ports that go down or come up, memory errors of
the host, CPUs that throttle, the OOM killer. They become `log_events` with the driver's text; what a number means is
judged later (`host_faults`). Times are kept only where a zone is printed (journalctl -o short-iso), since dmesg -T and
syslog print local ones. Sources: NVIDIA's Xid catalogue, Linux drivers/pci/pcie/aer.c, mlx5 en_main.c, mm/oom_kill.c.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from diagnose.ingest._moments import moments
from diagnose.ingest.text._lines import Lines
from diagnose.schema import INGESTED, Tables

KINDS = (
    ("xid", "ERROR", re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")),
    ("sxid", "ERROR", re.compile(r"SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")),
    ("pcie_error", "WARN", re.compile(r"pcieport ([0-9a-fA-F:.]+): .*\bAER: .*error")),
    ("port_down", "ERROR", re.compile(r"mlx[45]_\w+ ([0-9a-fA-F:.]+).*\bLink [Dd](?:own|OWN)")),
    ("port_up", "WARN", re.compile(r"mlx[45]_\w+ ([0-9a-fA-F:.]+).*\bLink [Uu](?:p|P)\b")),
    ("memory_error", "WARN", re.compile(r"EDAC (MC\d+): \d+ [CU]E")),
    ("cpu_throttled", "WARN", re.compile(r"(CPU\d+): .*(?:temperature above threshold|clock throttled)")),
    ("process_killed", "ERROR", re.compile(r"Out of memory: Killed process (\d+)")),
)  # fmt: skip
MARK = (
    r"NVRM: Xid \(PCI|SXid \(PCI|pcieport [0-9a-fA-F:.]+: .*AER: "
    r"|mlx[45]_\w+ [0-9a-fA-F:.]+.*Link (?:[Dd]own|DOWN|[Uu]p|UP)"
    r"|EDAC MC\d+: \d+ [CU]E|CPU\d+: .*(?:temperature above threshold|clock throttled)|Out of memory: Killed process \d"
)
_HOST = re.compile(r"^(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) ([\w.-]+) kernel: ")


class Reader:
    """Collects messages of one document, those that are alike counted once."""

    def __init__(self) -> None:
        self.events: dict[tuple[Any, ...], dict[str, Any]] = {}

    def feed(self, lines: Lines) -> int:
        """Read lines of the kernel."""
        known = 0
        when = moments(lines.text)
        for at, (number, text) in enumerate(lines.rows()):
            found = next(((k, level, m) for k, level, pattern in KINDS if (m := pattern.search(text))), None)
            if found is None:
                continue
            kind, level, match = found
            host = match_host[1] if (match_host := _HOST.search(text)) else None
            detail = text[match.start() :].removeprefix("NVRM: ")
            row = {
                "host": host, "kind": kind, "level": level, "detail": detail, "count": 0, "line": number,
                "ts_ns": int(when.ts_ns[at]) if when.known[at] and when.zoned[at] else None,
            }  # fmt: skip
            self.events.setdefault((host, kind, *match.groups()), row)["count"] += 1
            known += 1
        return known

    @property
    def host(self) -> str | None:
        """The host that all lines name."""
        hosts = {row["host"] for row in self.events.values()}
        return hosts.pop() if len(hosts) == 1 else None

    def tables(self, path: str) -> Tables:
        """`log_events`, where there are any."""
        schema = INGESTED["log_events"]
        rows = list(self.events.values())
        found: pa.Table = schema.of_rows(rows)
        return {"log_events": found} if rows else {}
