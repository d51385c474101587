"""Lines of the kernel log: numbers, places, hosts and what they mean, whatever printed them; the rest is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.analyses.host_faults import host_faults
from diagnose.ingest import Source, read
from diagnose.schema import Tables

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = "[    0.000000] Linux version 5.15.0 (gcc)\n[    1.234567] pci 0000:1b:00.0: BAR 1: assigned\n"


def load(tmp_path: Path, text: str, name: str = "dmesg.txt") -> Tables:
    path = tmp_path / name
    path.write_text(text)
    return read(Source(str(path)))


def faults(tables: Tables) -> list[dict[str, Any]]:
    return host_faults(tables["log_events"]).to_pylist()


@pytest.mark.parametrize(
    ("prefix", "host", "ts_ns"),
    [
        ("[12345.678901] ", None, None), ("[Mon Jan 15 10:22:33 2024] ", None, None),
        ("Jan 15 10:22:33 node12 kernel: ", "node12", None), ("Jan  5 10:22:33 node12 kernel: [99.1] ", "node12", None),
        ("2024-01-15T10:22:33+0000 node12 kernel: ", "node12", 1705314153000000000),
        ("2024-01-15T11:22:33+0100 node12 kernel: ", "node12", 1705314153000000000),
    ],
)  # fmt: skip
def test_an_xid_however_it_is_printed(tmp_path: Path, prefix: str, host: str | None, ts_ns: int | None) -> None:
    tables = load(tmp_path, BOOT + (prefix + XID + "\n") * 2)

    (event,) = tables["log_events"].to_pylist()
    assert (event["kind"], event["count"], event["host"], event["ts_ns"]) == ("xid", 2, host, ts_ns)
    assert tables["files"]["host"].to_pylist() == [host]
    (fault,) = faults(tables)
    assert (fault["code"], fault["place"], fault["blame"], fault["severity"]) == (
        79,
        "0000:1b:00",
        "device",
        "critical",
    )


def test_every_kind_and_the_gravest_first(tmp_path: Path) -> None:
    lines = [
        "NVRM: Xid (PCI:0000:3d:00): 31, pid=77, name=python, Ch 00000008, MMU Fault",
        "NVRM: Xid (PCI:0000:3d:00): 63, pid='<unknown>', Row Remapper: New row marked for remapping",
        "NVRM: Xid (PCI:0000:5e:00): 4242, pid=1",
        "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        "pcieport 0000:17:00.0: AER: Corrected error received: 0000:18:00.0",
        "mlx5_core 0000:0c:00.0 ib0: Link down",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
        "CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)",
        "Out of memory: Killed process 4711 (python) total-vm:1kB",
        "mlx5_core 0000:0c:00.0 ib0: Link up",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05",
    ]

    found = faults(load(tmp_path, "".join(f"[{n}.0] {line}\n" for n, line in enumerate(lines))))

    assert [(f["kind"], f["code"], f["place"], f["severity"]) for f in found] == [
        ("port_down", None, "0000:0c:00.0", "critical"), ("process_killed", None, "4711", "critical"),
        ("xid", 63, "0000:3d:00", "warning"), ("xid", 4242, "0000:5e:00", "warning"),
        ("sxid", 12028, "0000:c4:00.0", "warning"), ("pcie_error", None, "0000:17:00.0", "warning"),
        ("memory_error", None, "MC0", "warning"), ("cpu_throttled", None, "CPU3", "warning"),
        ("xid", 31, "0000:3d:00", "info"),
    ]  # fmt: skip
    assert found[3]["blame"] == "unknown", "a number that the catalogue does not have is not guessed at"


def test_other_messages_are_no_faults(tmp_path: Path) -> None:
    tables = load(tmp_path, BOOT, "kern.log")
    assert "log_events" not in tables and tables["files"]["status"].to_pylist() == ["unusable"]
