"""How every metric moves over the steps of a run: level, drift, step or bump of the job; early and late level per rank.

The job's step time decides which stretches are compared: before and behind its change, or the first and the last part
of a drift. Warm-up, stalls and ramps are left out (`_steady`, `_job_steps`). `change_ratio` is late over early, minus
one. A row is about the whole job where `rank` is null: the median over ranks. Few steps are `short`, not level.
Method: `_shapes_of_series`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import NO_RANK, Ints
from diagnose.analyses._grids import Floats, Grid, aligned, grids, over_ranks
from diagnose.analyses._job_steps import NEEDED, JobSteps, job_steps
from diagnose.analyses._router_signs import router_series
from diagnose.analyses._shapes_of_series import Shape, shape
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "metric of the job, or of one rank, over the steps of the run",
    ("rank", INT32, "global rank; null for the job (median over ranks); below -1000: a GPU whose rank is unknown"),
    ("device", LABEL, "the GPU in words, where its samples were put to the steps"),
    ("metric", LABEL, "name as in docs/tables.md, unit as suffix; `step` is the job's step time at constant work"),
    ("shape", LABEL, "level | drift | step | bump (it ended) | short (too few steps); null for single ranks"),
    ("first_step", INT64, "first step compared"),
    ("last_step", INT64, "last step"),
    ("steps_count", INT64, "values compared: without warm-up, stalls and ramps"),
    ("covered_count", INT64, "steps of training between the first and the last"),
    ("from_step", INT64, "step at which it begins to change"),
    ("until_step", INT64, "step at which it is over; null where it lasts"),
    ("early", FLOAT, "median before the change, in the metric's unit"),
    ("late", FLOAT, "median behind it, or of the last part of a drift"),
    ("mean", FLOAT, "mean of the values compared, in the metric's unit"),
    ("whole_mean", FLOAT, "mean of all values, warm-up and stalls too; of the job's step"),
    ("change_ratio", FLOAT, "late over early, minus one"),
    ("slope", FLOAT, "change per step of a drift, in the metric's unit"),
    ("noise_ratio", FLOAT, "robust standard deviation of single values over the level"),
    ("confidence_ratio", FLOAT, "1 minus the chance that noise alone looks like this"),
    ("timed", BOOL, "whether the value is a time; false where only a rate of unknown work is logged"),
    ("warm_up_count", INT64, "first steps left out"),
    ("stalls_count", INT64, "single long steps left out"),
    ("ramp_count", INT64, "steps left out because batch or sequence length differed"),
)

PARTS = (
    "compute_time_ns", "input_time_ns", "host_gap_time_ns", "gc_time_ns", "alloc_time_ns", "checkpoint_time_ns",
    "comm_time_ns", "dispatch_time_ns",
)  # fmt: skip
SIGNS = (
    "step_time_ns", "sm_clock_mhz", "gpu_temperature_c", "gpu_power_w", "expert_imbalance_ratio", "router_entropy",
    "busbw_gb_per_s", "alloc_retries_count", "memory_allocated_bytes", "memory_reserved_bytes", "host_memory_bytes",
    "throttle_thermal_ratio", "throttle_power_ratio", "throttle_hardware_ratio", "throttle_idle_ratio",
)  # fmt: skip


def trends(series: pa.Table, device_series: pa.Table | None = None, router_load: pa.Table | None = None) -> pa.Table:
    """The job's step first, then every part and sign: for the job and, of several ranks, for each.

    Signs that the job itself does not log are taken from samples of its GPUs and from records of its routers.
    """
    found = grids(series, (*NEEDED, *PARTS, *SIGNS))
    job = job_steps(found)
    sampled = {} if device_series is None else grids(device_series, SIGNS)
    routed = {} if router_load is None else grids(router_series(router_load), SIGNS)
    found = sampled | routed | found
    if job is None or not len(job.column):
        return SCHEMA.empty()
    kept = np.flatnonzero(job.steady.kept)
    line = shape(job.value[kept])
    early, late = windows(line, len(kept))
    rows = [_job_row(job, kept, line, early, late)]
    for name in (*PARTS, *SIGNS):
        if name in found:
            rows += _rows(found[name], job, kept, early, late)
    if device_series is not None:
        devices = device_series.group_by(["rank", "device"]).aggregate([]).to_pylist()
        named = {row["rank"]: row["device"] for row in devices}
        named[None] = devices[0]["device"] if len(devices) == 1 else None
        rows = [row | {"device": named.get(row.get("rank")) if row["metric"] in sampled else None} for row in rows]
    return SCHEMA.of_rows(rows)


def windows(line: Shape, count: int) -> tuple[slice, slice]:
    """The two stretches that are compared."""
    if line.name in ("step", "bump"):
        return slice(0, line.first), slice(line.first, line.last)
    part = max(1, count // 6)
    if line.name == "drift":
        return slice(0, max(part, line.first)), slice(count - part, count)
    third = max(1, count // 3)
    return slice(0, third), slice(count - third, count)


def _job_row(job: JobSteps, kept: Ints, line: Shape, early: slice, late: slice) -> dict[str, Any]:
    value, step = job.value[kept], job.step[kept]
    stalls = job.steady.stall
    return _described(line, value, step) | _levels(value, early, late) | {
        "metric": "step",
        "timed": job.timed,
        "whole_mean": float(job.value.mean()),
        "warm_up_count": int(job.steady.warm_up.sum()),
        "stalls_count": int(stalls.sum()),
        "ramp_count": job.ramp_count,
    }  # fmt: skip


def _described(line: Shape, value: Floats, step: Ints) -> dict[str, Any]:
    changed = line.name in ("drift", "step", "bump")
    apart = float(np.median(np.diff(step))) if len(step) > 1 else 1.0  # a value may stand for several steps
    return {
        "shape": line.name,
        "first_step": int(step[0]) if len(step) else None,
        "last_step": int(step[-1]) if len(step) else None,
        "steps_count": len(step),
        "covered_count": int(np.sum(np.maximum(np.diff(step), 0))) + 1 if len(step) else 0,
        "from_step": int(step[line.first]) if changed else None,
        "until_step": int(step[line.last - 1]) if line.name == "bump" else None,
        "slope": line.slope / max(apart, 1.0) if line.name == "drift" else None,
        "noise_ratio": line.noise / abs(float(np.median(value))) if len(value) and np.median(value) else None,
        "confidence_ratio": min(0.99, 1 - line.chance) if changed else None,
    }


def _levels(value: Floats, early: slice, late: slice) -> dict[str, Any]:
    before, behind = value[early], value[late]
    if not len(before) or not len(behind):
        return {}
    low, high = float(np.median(before)), float(np.median(behind))
    return {"early": low, "late": high, "mean": float(value.mean()), "change_ratio": high / low - 1 if low else None}


def _rows(grid: Grid, job: JobSteps, kept: Ints, early: slice, late: slice) -> list[dict[str, Any]]:
    """One row for the job and, of several ranks, one for each."""
    value = aligned(grid, job.grid, job.column[kept])
    middle = over_ranks(value)
    if np.isfinite(middle).sum() < 2:
        return []
    finite = np.isfinite(middle)
    step = job.step[kept]
    timed = grid.metric.endswith("_ns")
    line = shape(middle[finite])
    row = _described(line, middle[finite], step[finite]) | _means(middle, early, late)
    rows = [row | {"metric": grid.metric, "timed": timed}]
    if len(grid.ranks) > 1:
        low, high = (_row_medians(value[:, part]) for part in (early, late))
        for place, rank in enumerate(grid.ranks.tolist()):
            if rank != NO_RANK and np.isfinite(low[place]) and np.isfinite(high[place]):
                ratio = high[place] / low[place] - 1 if low[place] else None
                rows.append(
                    {"rank": rank, "metric": grid.metric, "early": float(low[place]), "late": float(high[place]),
                     "change_ratio": ratio, "timed": timed}
                )  # fmt: skip
    return rows


def _means(value: Floats, early: slice, late: slice) -> dict[str, Any]:
    before, behind = (part[np.isfinite(part)] for part in (value[early], value[late]))
    return _levels(np.concatenate((before, behind)), slice(0, len(before)), slice(len(before), None)) | {"mean": None}


def _row_medians(value: Floats) -> Floats:
    if not value.shape[1]:
        return np.full(value.shape[0], np.nan)
    return over_ranks(value.T)
