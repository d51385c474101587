"""Samples of GPUs put to the steps of the job by the wall clock: what each GPU did while a step ran.

A sample belongs to the step whose logged end is the next one, unless that end is far away (a pause, a restart); of
several in one step the mean is taken. Samples and step ends are joined only where both clocks are of one kind: with a
zone, or both local. The rank of a GPU is known from NCCL's log (host and device), or where one host's GPUs are as many
as the job's ranks, which are then taken in order; else it is a distinct number below -1000 and `device` names it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import Ints, codes, dictionary, flags, integers
from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "figure of one GPU at one step of the job",
    ("rank", INT32, "global rank that uses the GPU; below -1000 and distinct where unknown"),
    ("device", LABEL, "the GPU in words: number, and host or file"),
    ("segment", INT32, "stretch between restarts, as in series"),
    ("step", INT64, "step number"),
    ("metric", LABEL, "as in samples"),
    ("value", FLOAT, "mean of the samples in the step"),
)

FAR_RATIO = 5.0
"""A sample further before the end of its step than this many usual distances between ends belongs to no step."""
UNKNOWN = -1001
WORLD_SIZES = ("cluster.world_size", "WORLD_SIZE", "world_size")


def device_series(
    samples: pa.Table,
    step_ends: pa.Table,
    communicators: pa.Table | None = None,
    settings: pa.Table | None = None,
    files: pa.Table | None = None,
) -> pa.Table:
    """One row per GPU, step and metric that was sampled in it."""
    zoned = _common_clock(samples, step_ends)
    if zoned is None:
        return SCHEMA.empty()
    timed = samples.filter(pc.and_(pc.is_valid(samples["ts_ns"]), pc.equal(samples["zoned"], zoned)))
    when = integers(timed["ts_ns"])
    segment, step, end = _ends(step_ends.filter(pc.equal(step_ends["zoned"], zoned)))
    place = np.searchsorted(end, when)
    usual = float(np.median(np.diff(end))) if len(end) > 1 else 0.0
    inside = (place < len(end)) & (end[np.minimum(place, len(end) - 1)] - when <= FAR_RATIO * usual)
    if not inside.any():
        return SCHEMA.empty()
    timed, place = timed.filter(pa.array(inside)), place[inside]
    who, names = _devices(timed, files)
    ranks = _ranks(timed, who, len(names), communicators, settings)
    metrics, metric = dictionary(timed["metric"]), codes(timed["metric"])
    value = np.asarray(timed["value"].fill_null(np.nan), np.float64)
    key = (who * len(metrics) + metric) * len(end) + place
    distinct, row = np.unique(key, return_inverse=True)
    mean = np.bincount(row, weights=value) / np.bincount(row)
    device, rest = distinct // (len(metrics) * len(end)), distinct % (len(metrics) * len(end))
    at = rest % len(end)
    return SCHEMA.build(
        {
            "rank": ranks[device], "device": pa.array(names).take(pa.array(device)), "segment": segment[at],
            "step": step[at], "metric": pa.array(metrics).take(pa.array(rest // len(end))), "value": mean,
        }
    )  # fmt: skip


def _common_clock(samples: pa.Table, step_ends: pa.Table) -> bool | None:
    """The kind of clock that both have: zoned first, then local; None where they share none."""
    there = pc.is_valid(samples["ts_ns"])
    given, ends = (set(t["zoned"].unique().to_pylist()) for t in (samples.filter(there), step_ends))
    return next((kind for kind in (True, False) if kind in given and kind in ends), None)


def _ends(step_ends: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Segment, step and end of every step in order of time: the first rank that logged it."""
    segment, step, end = (integers(step_ends[name]) for name in ("segment", "step", "ts_ns"))
    order = np.lexsort((end, step, segment))
    segment, step, end = segment[order], step[order], end[order]
    first = np.append(True, (np.diff(segment) != 0) | (np.diff(step) != 0)) if len(step) else np.zeros(0, bool)
    segment, step, end = segment[first], step[first], end[first]
    later = end >= np.maximum.accumulate(end) if len(end) else first  # clocks that went back
    return segment[later], step[later], end[later]


def _devices(timed: pa.Table, files: pa.Table | None) -> tuple[Ints, list[str]]:
    """Number of each sample's GPU among all, and their names."""
    hosts, host = dictionary(timed["host"]), codes(timed["host"])
    file, device = integers(timed["file"], 0), integers(timed["device"], -1)
    source = np.where(host >= 0, host, -1 - file)
    key = np.stack([source, device], axis=1)
    distinct, who = np.unique(key, axis=0, return_inverse=True)
    paths = dict(zip(*(files[name].to_pylist() for name in ("file", "path")), strict=True)) if files is not None else {}
    several = len(np.unique(distinct[:, 0])) > 1
    names = []
    for origin, number in distinct.tolist():
        where = hosts[origin] if origin >= 0 else PurePath(paths.get(-1 - origin) or "?").name if several else ""
        names.append((f"GPU {number}" if number >= 0 else "a GPU") + (f" of {where}" if where else ""))
    return who.reshape(-1), names


def _ranks(
    timed: pa.Table, who: Ints, count: int, communicators: pa.Table | None, settings: pa.Table | None
) -> Ints:  # fmt: skip
    """Rank of every GPU."""
    first = np.full(count, len(who))
    np.minimum.at(first, who, np.arange(len(who)))
    rows = timed.take(pa.array(first)).select(["host", "device", "file"]).to_pylist()
    known = _told(communicators)
    hosts = {host for host, _ in known}
    ranks = []
    for place, row in enumerate(rows):
        host = row["host"] if row["host"] is not None else next(iter(hosts)) if len(hosts) == 1 else None
        ranks.append(known.get((host, row["device"]), UNKNOWN - place))
    one = len({(row["host"], row["file"] if row["host"] is None else None) for row in rows}) == 1
    numbers = [row["device"] for row in rows]
    if not known and one and None not in numbers and len(rows) == _world(settings):
        ranks = [sorted(numbers).index(number) for number in numbers]
    return np.array(ranks, np.int64)


def _told(communicators: pa.Table | None) -> dict[tuple[Any, Any], int]:
    """(host, device) -> rank as NCCL printed it, where it says only one."""
    found: dict[tuple[Any, Any], set[int]] = {}
    for row in communicators.select(["host", "device", "rank"]).to_pylist() if communicators is not None else ():
        if row["rank"] is not None and row["rank"] >= 0 and row["device"] is not None:
            found.setdefault((row["host"], row["device"]), set()).add(row["rank"])
    return {key: ranks.pop() for key, ranks in found.items() if len(ranks) == 1}


def _world(settings: pa.Table | None) -> int | None:
    if settings is None:
        return None
    mine = flags(pc.is_in(settings["key"], pa.array(WORLD_SIZES)))
    values = {value for value in settings["value"].filter(pa.array(mine)).to_pylist() if value and value.isdigit()}
    return int(values.pop()) if len(values) == 1 else None
