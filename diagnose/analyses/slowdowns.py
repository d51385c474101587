"""Why the job's step became longer: the part that grew with it, on one rank or on all, and the sign that names the
cause.

A part explains a slowdown if it grew by at least half as much as the step, on the rank that all others wait for:
where one rank's own work (everything but communication) grew and the others' did not, it is that rank, and the longer
collectives of the others are waiting. Communication that grew on all ranks while no rank's own work did is explained
by growing imbalance of experts, by a fall of bus bandwidth, or not at all. What the evidence cannot tell apart is
`unknown`, with what to collect; a sign that merely moved too (a temperature, a loss) is no cause.
Where no part of the step is logged, clocks alone can name the cause (`_clock_signs`): of few GPUs, or with a reason why
they were throttled, since GPUs that wait for something else may lower their clocks as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._clock_signs import CLOCK_FALL_RATIO, Level, Levels, idles_more, of_devices, why_throttled
from diagnose.schema import FLOAT, INT64, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "cause of a change of the job's step time",
    ("cause", LABEL, "rank | clocks | input | gc | leak | fragmentation | imbalance | router_collapse | link | "
                     "checkpoint | host_gap | unknown"),
    ("ranks", RANKS, "ranks that changed; null where all did"),
    ("part", LABEL, "part of the step that grew most there"),
    ("shape", LABEL, "drift | step | bump, of the job's step"),
    ("from_step", INT64, "step at which the job begins to change"),
    ("until_step", INT64, "step at which it is over; null where it lasts"),
    ("grown_ns", INT64, "how much longer the job's step is behind the change"),
    ("part_grown_ns", INT64, "how much longer the part is, on those ranks"),
    ("explained_ratio", FLOAT, "the part's growth over the step's"),
    ("slope_ns", INT64, "growth of the part per step, for a drift"),
    ("lost_ns", INT64, "per step, mean over the steps compared"),
    ("usual_ns", INT64, "the job's step before the change"),
    ("sign", LABEL, "metric that names the cause"),
    ("sign_early", FLOAT, "its level before"),
    ("sign_late", FLOAT, "its level behind"),
    ("devices", TEXT, "GPUs in words, where their ranks are unknown"),
    ("note", TEXT, "what else the sign's source says: why clocks were throttled"),
    ("confidence_ratio", FLOAT, "of the change, less where signs are missing"),
    ("collect", TEXT, "what would settle an unknown cause"),
)  # fmt: skip

OWN = ("compute", "input", "host_gap", "gc", "alloc", "checkpoint")
EXPLAINS_RATIO = 0.5
OTHERS_RATIO = 0.25
"""Where the typical rank's own work grew by more than this share, it is not one rank's doing."""
SIGN_RATIO = 0.05
ENTROPY_FALL_RATIO = 0.15
CHANGED = ("drift", "step", "bump")
SLOWER_RATIO = 0.005
"""Below half a percent a change is not looked into."""


def slowdowns(trends: pa.Table) -> pa.Table:
    """Causes of the job's slowdown, best explained first; empty where it did not slow down, or only a rate is known."""
    rows = trends.to_pylist()
    job = next((row for row in rows if row["metric"] == "step" and row["rank"] is None), None)
    if job is None or job["shape"] not in CHANGED or not job["change_ratio"] or job["change_ratio"] < SLOWER_RATIO:
        return SCHEMA.empty()
    levels: Levels = {}
    for row in rows:
        if row["early"] is not None and row["late"] is not None:
            levels.setdefault(row["metric"], {})[row["rank"]] = Level(row["early"], row["late"], row["slope"])
    names = {row["rank"]: row["device"] for row in rows if row["device"] is not None}
    found = _causes(levels, job["late"] - job["early"]) if job["timed"] else []
    found = found or _of_clocks(levels, job["change_ratio"]) or [_unknown(levels)]
    described = [_row(_named(cause, names), job) for cause in found]
    return SCHEMA.of_rows(described)


def _named(cause: dict[str, Any], names: dict[int | None, str]) -> dict[str, Any]:
    """The cause with GPUs of unknown rank called by their names instead."""
    ranks = cause.get("ranks")
    if ranks is None or all(rank >= 0 for rank in ranks):
        return cause
    return cause | {"ranks": None, "devices": ", ".join(names.get(rank, "a GPU") for rank in ranks)}


def _row(cause: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    timed = job["timed"]
    if timed and cause.get("part_grown_ns") is None and cause["cause"] == "clocks":
        cause = cause | {"part_grown_ns": round(cause["explained_ratio"] * (job["late"] - job["early"]))}
    lost = max(0.0, (job["mean"] or 0) - job["early"])
    row = {
        "shape": job["shape"],
        "from_step": job["from_step"],
        "until_step": job["until_step"],
        "grown_ns": round(job["late"] - job["early"]) if timed else None,
        "usual_ns": round(job["early"]) if timed else None,
        "lost_ns": round(lost * min(1.0, cause.get("explained_ratio") or 0.0)) if timed else 0,
    }
    sure = (job["confidence_ratio"] or 0.5) * cause.pop("sure", 1.0)
    return row | cause | {"confidence_ratio": round(sure, 3)}


def _causes(levels: Levels, grown: float) -> list[dict[str, Any]]:
    own = _own_growth(levels)
    ranks = [rank for rank in own if rank is not None]
    typical = own.get(None, float(np.median([own[r] for r in ranks])) if ranks else 0.0)
    found: list[dict[str, Any]] = []
    if len(ranks) > 1:
        slow = [rank for rank in ranks if own[rank] >= EXPLAINS_RATIO * grown]
        most = max(1, len(ranks) // 4)
        if slow and len(slow) <= most and typical <= OTHERS_RATIO * grown:
            return _of_ranks(levels, slow, own, grown)
    for part in OWN:
        level = levels.get(f"{part}_time_ns", {}).get(None)
        if level is not None and level.grown >= EXPLAINS_RATIO * grown:
            found.append(_of_part(levels, part, None, level, grown))
    if not found:
        found += _of_communication(levels, grown)
    return found


def _own_growth(levels: Levels) -> dict[int | None, float]:
    """Growth of each rank's own work: the sum of its parts, else its step without communication."""
    parts = [levels[f"{part}_time_ns"] for part in OWN if f"{part}_time_ns" in levels]
    if "compute_time_ns" not in levels and "comm_time_ns" in levels and "step_time_ns" in levels:
        comm, step = levels["comm_time_ns"], levels["step_time_ns"]
        return {rank: step[rank].grown - comm[rank].grown for rank in step if rank in comm}
    ranks = {rank for part in parts for rank in part}
    return {rank: sum(part[rank].grown for part in parts if rank in part) for rank in ranks}


def _of_ranks(levels: Levels, slow: list[int], own: dict[int | None, float], grown: float) -> list[dict[str, Any]]:
    """One or few ranks turned slow: by which part, and do their clocks say why?"""
    worst = max(slow, key=lambda rank: own[rank])
    parts = {p: levels[f"{p}_time_ns"][worst] for p in OWN if worst in levels.get(f"{p}_time_ns", {})}
    part = max(parts, key=lambda p: parts[p].grown) if parts else None
    if part is not None and parts[part].grown < EXPLAINS_RATIO * own[worst]:
        part = None  # what grew is in none of the parts that are logged
    base = {
        "ranks": sorted(slow), "part": part, "part_grown_ns": round(own[worst]),
        "explained_ratio": min(1.0, own[worst] / grown),
    }  # fmt: skip
    rank = base | {"cause": "rank"}
    if part is not None and part != "compute" and parts[part].grown >= EXPLAINS_RATIO * grown:
        return [_of_part(levels, part, sorted(slow), parts[part], grown), rank]
    clock = _sign(levels, "sm_clock_mhz", worst)
    if clock is not None and clock.ratio <= -CLOCK_FALL_RATIO:
        return [base | _signed("clocks", "sm_clock_mhz", clock) | {"note": why_throttled(levels, worst)}, rank]
    sampled = of_devices(levels)  # whose GPU it is, is unknown
    if clock is None and sampled is not None and sampled.few:
        named = _signed("clocks", "sm_clock_mhz", sampled.level) | {"ranks": sampled.devices, "note": sampled.note}
        return [base | named | {"sure": 0.8}, rank]
    seen = f"GPU clocks, temperature and throttle reasons of rank {worst} (nvidia-smi or DCGM)"
    return [rank | {"collect": None if clock is not None else seen, "sure": 1.0 if clock is not None else 0.8}]


def _of_part(levels: Levels, part: str, ranks: list[int] | None, level: Level, grown: float) -> dict[str, Any]:
    base: dict[str, Any] = {
        "ranks": ranks, "part": part, "part_grown_ns": round(level.grown), "slope_ns": _whole(level.slope),
        "explained_ratio": min(1.0, level.grown / grown),
    }  # fmt: skip
    for metric in ("memory_allocated_bytes", "host_memory_bytes"):
        memory = _sign(levels, metric, None)
        if part == "gc" and memory is not None and memory.ratio >= SIGN_RATIO:
            return base | _signed("leak", metric, memory)
    if part == "alloc":
        retries = _sign(levels, "alloc_retries_count", None)
        return base | (
            _signed("fragmentation", "alloc_retries_count", retries) if retries else {"cause": "fragmentation"}
        )
    if part == "compute":
        clock = _sign(levels, "sm_clock_mhz", None)
        if clock is not None and clock.ratio <= -CLOCK_FALL_RATIO and not idles_more(levels, None):
            return base | _signed("clocks", "sm_clock_mhz", clock) | {"note": why_throttled(levels, None)}
        missing = "" if clock is not None else "GPU clocks, temperature and throttle reasons over the run, and "
        text = f"{missing}traces of one rank before and behind the change (diagnose compare)"
        return base | {"cause": "unknown", "collect": text}
    return base | {"cause": part}


def _of_communication(levels: Levels, grown: float) -> list[dict[str, Any]]:
    """Collectives grew though no rank's own work did: experts, a link, or not to be told."""
    comm = levels.get("comm_time_ns", {}).get(None) or levels.get("dispatch_time_ns", {}).get(None)
    imbalance, entropy = (_sign(levels, name, None) for name in ("expert_imbalance_ratio", "router_entropy"))
    base: dict[str, Any] = {"ranks": None, "part": "comm" if comm else None}
    if comm is not None:
        base |= {"part_grown_ns": round(comm.grown), "slope_ns": _whole(comm.slope)}
    explained = min(1.0, comm.grown / grown) if comm is not None else None
    if comm is not None and comm.grown < OTHERS_RATIO * grown:
        return []
    base["explained_ratio"] = explained if explained is not None else EXPLAINS_RATIO
    if entropy is not None and entropy.ratio <= -ENTROPY_FALL_RATIO:
        return [base | _signed("router_collapse", "router_entropy", entropy)]
    if imbalance is not None and imbalance.ratio >= SIGN_RATIO:
        return [base | _signed("imbalance", "expert_imbalance_ratio", imbalance)]
    bandwidth = _sign(levels, "busbw_gb_per_s", None)
    if bandwidth is not None and bandwidth.ratio <= -CLOCK_FALL_RATIO:
        return [base | _signed("link", "busbw_gb_per_s", bandwidth)]
    return []


def _of_clocks(levels: Levels, grown_ratio: float) -> list[dict[str, Any]]:
    """No part of the step is logged: can clocks that fell account for half of what it grew?"""
    sampled = of_devices(levels)
    if sampled is None or not (sampled.few or sampled.note):
        return []
    explained = min(1.0, (1 / (1 + sampled.level.ratio) - 1) / grown_ratio)
    if explained < EXPLAINS_RATIO:
        return []
    base = {"ranks": sampled.devices, "part": None, "explained_ratio": explained, "note": sampled.note}
    return [base | _signed("clocks", "sm_clock_mhz", sampled.level) | {"sure": 0.9 if sampled.note else 0.7}]


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _sign(levels: Levels, metric: str, rank: int | None) -> Level | None:
    own = levels.get(metric, {})
    return own.get(rank) or (own.get(None) if len(own) == 1 else None)


def _signed(cause: str, metric: str, level: Level) -> dict[str, Any]:
    return {"cause": cause, "sign": metric, "sign_early": level.early, "sign_late": level.late}


_TELLS = (
    ("compute_time_ns", "compute, input, communication and garbage-collection time per step and rank (hook records)"),
    ("sm_clock_mhz", "GPU clocks and throttle reasons (nvidia-smi or DCGM)"),
    ("memory_allocated_bytes", "allocated and reserved memory and allocator retries per step"),
    ("expert_imbalance_ratio", "expert load, if it is a mixture of experts"),
)  # fmt: skip


def _unknown(levels: Levels) -> dict[str, Any]:
    parted = "comm_time_ns" in levels and "step_time_ns" in levels  # the rest is a rank's own work
    needed = [t for metric, t in _TELLS if metric not in levels and not (parted and metric == "compute_time_ns")]
    text = ", ".join(needed) or "traces of all ranks before and behind the change"
    return {"cause": "unknown", "collect": text, "sure": 1.0}
