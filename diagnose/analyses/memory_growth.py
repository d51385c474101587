"""What grows over steps, by how much a step, and since when: a leak, a one-time jump, a saw-tooth or nothing.

Per rank and figure (allocated, reserved, unallocated, used, host) of a log, and per place in the code of a snapshot
whose allocations are never freed. A leak raises the floor, not the peaks: steps are cut into stretches, each stretch's
least value is its floor, and the slope is the median step between floors. One jump after which the floor is flat is
lazy state (Adam makes its own at the first step), no leak; a saw-tooth returns to its floor. One deep dip moves one
floor and no median: growth is what both have risen by.
Method: Theil-Sen on floors (median of pairwise slopes), robust against single odd steps.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose import sql
from diagnose.analyses._columns import Ints
from diagnose.analyses._memory_messages import devices_of
from diagnose.analyses._memory_series import KINDS, Track, tracks
from diagnose.schema import FLOAT, INT32, INT64, LABEL, TEXT, table

SCHEMA = table(
    "figure that may grow",
    ("rank", INT32, "global rank"),
    ("figure", LABEL, "allocated | reserved | unallocated | used | host (resident memory of the process) | place"),
    ("place", TEXT, "line of code, for figure = place"),
    ("shape", LABEL, "growing | jump | flat | falling | short (too few steps to tell)"),
    ("slope_bytes", INT64, "growth per step of the floor; for a place per allocation it keeps"),
    ("first_step", INT64, "first step looked at"),
    ("last_step", INT64, "last step"),
    ("steps_count", INT64, "steps with a value; for a place its live allocations"),
    ("first_bytes", INT64, "value at the first step"),
    ("last_bytes", INT64, "value at the last step"),
    ("grown_bytes", INT64, "how far the floor rose; for a place what it holds"),
    ("rising_ratio", FLOAT, "share of stretches whose floor is above the one before"),
    ("jump_bytes", INT64, "largest rise between two steps"),
    ("jump_step", INT64, "step after it"),
    ("capacity_bytes", INT64, "memory of the device, where known"),
    ("left_count", INT64, "steps until growth fills the device; null where its size is not known"),
    ("peak_bytes", INT64, "largest value of the same figure's peak, where printed"),
    ("reserved_bytes", INT64, "reserved at the last step, where known"),
    ("used_bytes", INT64, "in use on the device at the last step, where known"),
)

LEAST_STEPS = 8
"""Fewer say nothing about growth."""
STRETCHES = 8
FLAT_RATIO = 0.005
"""A floor that moves less than this share of itself over the recording is flat: rounding and noise."""
LEAST_KEPT = 5
"""A place that keeps fewer allocations is set-up, not growth."""


def memory_growth(
    lifetimes: pa.Table | None = None, series: pa.Table | None = None, files: pa.Table | None = None
) -> pa.Table:
    """One row per rank and figure, and one per place that only ever allocates."""
    devices = devices_of(files) if files is not None else {}
    rows = _figures(tracks(series, (*KINDS, "host")), devices)
    if lifetimes is not None:
        rows += _places(lifetimes)
    return SCHEMA.of_rows(rows)


def _figures(found: list[Track], devices: dict[int | None, int]) -> list[dict[str, Any]]:
    by_rank: dict[int | None, dict[str, Track]] = {}
    for track in found:
        by_rank.setdefault(track.rank, {})[track.kind] = track
    rows = []
    for rank, own in by_rank.items():
        figures: dict[str, Track] = {
            kind: own[kind] for kind in ("allocated", "reserved", "used", "host") if kind in own
        }
        if {"allocated", "reserved"} <= own.keys():
            both, a, b = np.intersect1d(own["allocated"].step, own["reserved"].step, return_indices=True)
            figures["unallocated"] = Track(
                rank, "unallocated", both, own["reserved"].size[b] - own["allocated"].size[a]
            )
        for name, track in figures.items():
            row = _shape(track) | {"rank": rank, "figure": name}
            peak, capacity = own.get(f"peak_{name}"), devices.get(rank) if name != "host" else None
            row["peak_bytes"] = int(peak.size.max()) if peak is not None else None
            row |= {f"{k}_bytes": int(own[k].size[-1]) for k in ("reserved", "used") if k in own}
            if capacity and row["shape"] == "growing" and row["slope_bytes"]:
                top = max(row["last_bytes"], row["peak_bytes"] or 0)
                row |= {"capacity_bytes": capacity, "left_count": max(0, (capacity - top) // row["slope_bytes"])}
            rows.append(row)
    return rows


def _shape(track: Track) -> dict[str, Any]:
    step, size = track.step, track.size
    row: dict[str, Any] = {
        "first_step": int(step[0]),
        "last_step": int(step[-1]),
        "steps_count": len(step),
        "first_bytes": int(size[0]),
        "last_bytes": int(size[-1]),
        "shape": "short",
    }
    if len(step) < 2:
        return row
    jumps = np.diff(size)
    highest = int(np.argmax(jumps))
    row |= {"jump_bytes": max(0, int(jumps[highest])), "jump_step": int(step[highest + 1])}
    if len(step) < LEAST_STEPS:
        return row
    warm = max(1, len(step) // 10)  # the first steps always fill caches and make optimizer state
    at, floor, middle = _floors(step[warm:], size[warm:])
    slope = _theil_sen(at, floor)
    grown = int(min(floor[-1] - floor[0], middle[-1] - middle[0], key=abs))
    rising = float(np.mean(np.diff(floor) > 0)) if len(floor) > 1 else 0.0
    flat = abs(grown) <= FLAT_RATIO * max(1, int(floor.max()))
    others = np.delete(np.diff(floor), int(np.argmax(np.diff(floor)))) if len(floor) > 2 else np.zeros(0)
    once = len(others) and float(np.median(others)) <= 0 and rising <= 0.5
    if grown < 0 and not flat:
        shape = "falling"
    elif flat or once:
        lazy = row["jump_bytes"] > FLAT_RATIO * max(1, int(size.max())) and int(size[-1]) > int(size[0])
        shape = "jump" if lazy and _once(size, highest) else "flat"
    else:
        shape = "growing" if rising >= 0.5 and slope > 0 else "flat"
    return row | {"shape": shape, "slope_bytes": round(slope), "grown_bytes": max(0, grown), "rising_ratio": rising}


def _once(size: Ints, at: int) -> bool:
    """Whether the step `at` is the only rise of note: before and behind it values stay within a tenth of it."""
    rise = size[at + 1] - size[at]
    before, behind = size[: at + 1], size[at + 1 :]
    return bool(np.ptp(before) <= 0.1 * rise and np.ptp(behind) <= 0.1 * rise)


def _floors(step: Ints, size: Ints) -> tuple[np.ndarray, Ints, np.ndarray]:
    """Step and size of the least value of each stretch, and its median."""
    count = min(STRETCHES, len(step) // 2)
    edges = np.linspace(0, len(step), count + 1, dtype=np.int64)
    floor = np.minimum.reduceat(size, edges[:-1])
    at = np.array([step[a + int(np.argmin(size[a:b]))] for a, b in itertools.pairwise(edges)])
    return at.astype(np.float64), floor, np.array([np.median(size[a:b]) for a, b in itertools.pairwise(edges)])


def _theil_sen(at: np.ndarray, value: Ints) -> float:
    """Median of the slopes between all pairs."""
    i, j = np.triu_indices(len(at), 1)
    apart = at[j] - at[i]
    return float(np.median((value[j] - value[i])[apart > 0] / apart[apart > 0])) if (apart > 0).any() else 0.0


def _places(lifetimes: pa.Table) -> list[dict[str, Any]]:
    """Places of which every recorded allocation of one size is alive at the end, made at different times."""
    columns = ["rank", "place", "size_bytes", "alive", "start_index"]
    with sql.over(lifetimes=lifetimes.select(columns)) as connection:
        found = connection.execute(
            """SELECT rank, place, COUNT(*) AS kept, SUM(size_bytes)::BIGINT AS held, MEDIAN(size_bytes) AS size
               FROM lifetimes WHERE place IS NOT NULL AND start_index >= 0
               GROUP BY rank, place HAVING BOOL_AND(alive) AND COUNT(*) >= $least ORDER BY held DESC LIMIT 50""",
            {"least": LEAST_KEPT},
        ).fetchall()
    return [
        {"rank": rank, "figure": "place", "place": place, "shape": "growing", "steps_count": kept,
         "grown_bytes": held, "slope_bytes": round(size)}
        for rank, place, kept, held, size in found
    ]  # fmt: skip
