"""Who writes: the description of this rank that heads its files and tells an attaching program how to reach it."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any


def number(name: str, default: int) -> int:
    """A whole number from the environment."""
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return default


def describe() -> dict[str, Any]:
    """rank, world_size, local_rank, attempt, host, process, its start, boot id, pid namespace, clocks."""
    rank, world_size = _place()
    return {
        "rank": rank,
        "world_size": world_size,
        "local_rank": number("LOCAL_RANK", 0),
        "attempt": number("TORCHELASTIC_RESTART_COUNT", 0),
        "host": socket.gethostname()[:64],
        "process": os.getpid(),
        "process_start": start_of(os.getpid()),
        "boot": text_of("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": link_of("/proc/self/ns/pid"),
        "wall_ns": time.time_ns(),
        "mono_ns": time.perf_counter_ns(),
    }


def _place() -> tuple[int, int]:
    """Rank and world size: of the process group, which also ranks that were spawned without an environment have."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return number("RANK", 0), number("WORLD_SIZE", 1)


def start_of(process: int) -> int:
    """When a process started, in clock ticks since boot: tells it from a later one of the same number. 0: gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def save(path: Path, value: dict[str, Any]) -> None:
    """Write JSON under its name only when it is whole."""
    partial = path.with_name(path.name + ".tmp")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
    partial.replace(path)


def text_of(path: str) -> str:
    """Contents of a small file of the kernel; empty where there is none."""
    try:
        return Path(path).read_text("utf-8").strip()[:64]
    except OSError:
        return ""


def link_of(path: str) -> str:
    """Text of a link; empty where there is none."""
    try:
        return os.readlink(path)  # noqa: PTH115  the link's text, not a path
    except OSError:
        return ""
