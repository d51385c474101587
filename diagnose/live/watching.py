"""A running job at a glance: per rank its step, its times and its memory, who is late, and which layer still answers.

Numbers come from the rings alone. A rank that has not ended a step for long is asked, layer by layer: its control
socket (the interpreter answers), torch's server (C++ answers), its ring and /proc (nobody has to answer).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from diagnose.hook_records import UNKNOWN
from diagnose.live import asking, rings
from diagnose.live.ranks import Found, Rank, state

RECENT = 60
STALE_STEPS, STALE_S = 10, 5.0
"""A rank is stale after this many of its usual steps, and at least this many seconds, without an end of one."""


def rows(found: Found, recent: int = RECENT, now_ns: int | None = None) -> list[dict[str, Any]]:
    """One row per rank, whose own work is longest first; figures that are not known are None."""
    now = time.time_ns() if now_ns is None else now_ns
    result = [_row(rank, recent, now) for rank in found.ranks]
    steps = [r["step"] for r in result if r["step"] is not None]
    for row in result:
        row["behind_count"] = max(steps) - row["step"] if row["step"] is not None else None
    return sorted(result, key=lambda r: (-(r["own_ns"] or 0), r["rank"]))


def _row(rank: Rank, recent: int, now: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rank": rank.rank, "host": rank.host, "process": rank.process, "state": state(rank), "step": None,
        "age_ns": None, "problem": None,
    }  # fmt: skip
    row |= dict.fromkeys(("step_ns", "slow_step_ns", "own_ns", "input_ratio", "comm_ratio", "gc_ratio", "hook_ratio"))
    row |= dict.fromkeys(("memory_bytes", "memory_kind"))
    if rank.ring is None:
        return row | {"problem": None if rank.ended else "no ring"}
    try:
        tail = rings.tail(rank.ring, recent)
    except (OSError, ValueError) as error:
        return row | {"problem": getattr(error, "strerror", None) or str(error)}
    values = tail.records.values
    if not len(tail.records.seq):
        return row | {"problem": "no step yet"}
    row["step"], row["age_ns"] = int(values["step"][-1]), max(0, now - int(values["end_wall_ns"][-1]))
    return row | _times(values) | _memory(values)


def _times(values: dict[str, Any]) -> dict[str, Any]:
    length = _of(values, "step_time_ns")
    if not len(length):
        return {}
    mean = float(length.mean())
    comm = _comm(values)
    shares = {
        "input_ratio": _mean(values, "input_time_ns") / mean,
        "gc_ratio": _mean(values, "gc_time_ns") / mean,
        "hook_ratio": _mean(values, "hook_time_ns") / mean,
    }
    found: dict[str, Any] = {"step_ns": int(np.median(length)), "slow_step_ns": int(np.quantile(length, 0.9))} | shares
    if comm is not None:
        found |= {"comm_ratio": comm / mean, "own_ns": int(max(0.0, np.median(length) - comm))}
    return found


def _comm(values: dict[str, Any]) -> float | None:
    """Mean time waited in communication; None where nothing was seen."""
    ddp, waits = _of(values, "previous_ddp_comm_time_ns"), _of(values, "wait_count")
    if not len(ddp) and not (waits > 0).any():
        return None
    return (float(np.median(ddp)) if len(ddp) else 0.0) + _mean(values, "wait_time_ns")


def _memory(values: dict[str, Any]) -> dict[str, Any]:
    for kind in ("memory_allocated_bytes", "host_memory_bytes"):
        known = _of(values, kind)
        if len(known):
            return {"memory_bytes": int(known[-1]), "memory_kind": "device" if kind.startswith("memory") else "host"}
    return {}


def _of(values: dict[str, Any], name: str) -> Any:
    found = values.get(name, np.empty(0, np.int64))
    return found[found != UNKNOWN]


def _mean(values: dict[str, Any], name: str) -> float:
    known = _of(values, name)
    return float(known.mean()) if len(known) else 0.0


def is_stale(row: dict[str, Any]) -> bool:
    """Whether a rank that should be running has not ended a step for long."""
    if row["age_ns"] is None or row["state"] in ("ended", "dead"):
        return False
    return bool(row["age_ns"] > max(STALE_S * 1e9, STALE_STEPS * (row["step_ns"] or 0)))


def ladder(rank: Rank, row: dict[str, Any]) -> dict[str, Any]:
    """Which layers answer, outermost first, and what that means."""
    control = "error" not in asking.ask(rank, 2.0, verb="ping")
    server = rank.torch is not None and asking.torch_server(rank.torch, "ping", 2.0) is not None
    layers = {"control": control, "torch": server if rank.torch is not None else None, "ring": row["step"] is not None}
    return {"layers": layers, "meaning": _meaning(state(rank), control, is_stale(row))}


def _meaning(what: str, control: bool, stale: bool) -> str:
    if what in ("ended", "dead"):
        return what
    if what == "stopped":
        return "stopped by a signal (SIGSTOP, a debugger): only its ring and /proc answer"
    if control:
        return "hangs or waits: its interpreter answers, but no step ends (ask for stacks)" if stale else "running"
    if what == "elsewhere":
        return "not reachable from this host; its ring is read through the run folder"
    return "does not answer: stuck holding the interpreter lock, or blocked in the kernel; its ring still tells"


def slowest(found: list[dict[str, Any]], typical: Callable[[Any], Any] = np.median) -> dict[str, Any] | None:
    """The rank whose own work stands out: a tenth of a step above the typical one, and the others wait."""
    known = [r for r in found if r["own_ns"] is not None and r["step_ns"]]
    if len(known) < 2:
        return None
    top = max(known, key=lambda r: r["own_ns"])
    rest = float(typical([r["own_ns"] for r in known if r is not top]))
    return top if top["own_ns"] - rest > 0.1 * top["step_ns"] else None
