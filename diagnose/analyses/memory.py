"""Memory over time: what each part of training held, what was allocated and reserved, per rank and device.

Snapshots and traces are sampled at up to 2,000 states, in each stretch the fullest one, so that no peak is lost.
Training logs give allocated, reserved and device use by step, as printed; the allocator's counters a single row.
Not here: which allocations these are (`lifetimes`), and memory outside the caching allocator, which no history records.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._allocator_counters import SOURCE, latest
from diagnose.analyses._columns import NO_RANK, Flags, Ints, codes, dictionary, integers
from diagnose.analyses._memory_roles import PARTS
from diagnose.analyses._memory_series import KINDS, Track, tracks
from diagnose.analyses.lifetimes import Group, groups
from diagnose.schema import INT32, INT64, LABEL, table

SAMPLES = 2000
_STEPS = 1 << 40
"""Steps of one rank, in a key of rank and step."""

SCHEMA = table(
    "state of one device's memory",
    ("rank", INT32, "global rank"),
    ("device", INT32, "device index; null in logs"),
    ("source", LABEL, "snapshot | trace | series | statistics"),
    ("index", INT64, "state: after how many allocator events, less one; null in logs"),
    ("step", INT64, "step as printed; logs only"),
    ("ts_ns", INT64, "absolute time, where recorded"),
    *((f"{part}_bytes", INT64, f"held by {part}") for part in PARTS),
    ("allocated_bytes", INT64, "in live allocations"),
    ("reserved_bytes", INT64, "reserved by the allocator"),
    ("used_bytes", INT64, "in use on the device by anybody"),
    ("peak_allocated_bytes", INT64, "maximum of allocated since the last reset, as printed"),
    ("peak_reserved_bytes", INT64, "maximum of reserved, as printed"),
)


def memory(
    lifetimes: pa.Table | None = None,
    allocations: pa.Table | None = None,
    blocks: pa.Table | None = None,
    segments: pa.Table | None = None,
    series: pa.Table | None = None,
    allocator_stats: pa.Table | None = None,
    device_series: pa.Table | None = None,
) -> pa.Table:
    """Samples of all ranks and devices."""
    parts = []
    if lifetimes is not None and allocations is not None:
        parts += [_of_group(group, lifetimes, segments) for group in groups(allocations, blocks)]
    parts += [*_of_series(tracks(series) + tracks(device_series)), *_of_counters(allocator_stats)]
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty()


def mine(lifetimes: pa.Table, group: Group) -> pa.Table:
    """Lives of one group."""
    rank, device = integers(lifetimes["rank"], NO_RANK), integers(lifetimes["device"], -1)
    source = codes(lifetimes["source"])
    names = dictionary(lifetimes["source"])
    wanted = names.index(group.source) if group.source in names else -2
    return lifetimes.filter(pa.array((rank == group.rank) & (device == group.device) & (source == wanted)))


def part_totals(lives: pa.Table, n: int, at: Ints | None = None) -> Ints:
    """Bytes of each of PARTS (first axis) in the states -1 to n - 1, or in the places `at` among them."""
    names = dictionary(lives["part"])
    place = np.array([PARTS.index(name) if name in PARTS else PARTS.index("unknown") for name in names])
    part = place[codes(lives["part"])] if lives.num_rows else np.zeros(0, dtype=np.int64)
    start, end = integers(lives["start_index"]) + 1, np.minimum(integers(lives["end_index"]), n) + 1
    size = integers(lives["size_bytes"])
    result = []
    for number in range(len(PARTS)):  # one at a time: a history can have tens of millions of states
        own = part == number
        alive = running(start[own], end[own], size[own], n)
        result.append(alive if at is None else alive[at])
    return np.stack(result)


def running(start: Ints, end: Ints, size: Ints, n: int) -> Ints:
    """Sum of `size` over what is alive in each of n + 1 places: alive in start .. end - 1."""
    change = np.zeros(n + 2, dtype=np.int64)
    np.add.at(change, start, size)
    np.subtract.at(change, end, size)
    return np.cumsum(change)[: n + 1]


def allocated_totals(lives: pa.Table, n: int) -> Ints:
    """Bytes alive in the states -1 to n - 1."""
    start, end = integers(lives["start_index"]) + 1, np.minimum(integers(lives["end_index"]), n) + 1
    return running(start, end, integers(lives["size_bytes"]), n)


def reserved_totals(group: Group, segments: pa.Table | None, allocated: Ints) -> Ints | None:
    """Reserved bytes in the states -1 to n - 1, never below what is allocated; None where nothing tells."""
    n = group.events.num_rows
    if group.source == "trace":
        if group.events["reserved_bytes"].null_count == n or group.device < 0:
            return None
        recorded = integers(group.events["reserved_bytes"], 0)
        return np.asarray(np.maximum(np.append(recorded[:1], recorded), allocated))
    if segments is None:
        return None
    at_end = int(integers(segments["size_bytes"])[own_rows(segments, group)].sum())
    names = dictionary(group.events["action"])
    sign = (
        np.array([_RESERVES.get(name, 0) for name in names])[codes(group.events["action"])] if n else np.zeros(0, int)
    )
    change = sign * integers(group.events["size_bytes"])
    later = np.append(np.cumsum(change[::-1])[::-1], 0)
    return np.asarray(np.maximum(at_end - later, allocated))


_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def own_rows(rows: pa.Table, group: Group) -> Flags:
    return np.asarray((integers(rows["rank"], NO_RANK) == group.rank) & (integers(rows["device"], -1) == group.device))


def _of_group(group: Group, lifetimes: pa.Table, segments: pa.Table | None) -> pa.Table:
    n = group.events.num_rows
    lives = mine(lifetimes, group)
    allocated = allocated_totals(lives, n)
    reserved = reserved_totals(group, segments, allocated)
    at = _fullest(allocated)
    by_part = part_totals(lives, n, at)
    times = np.append(-1, integers(group.events["ts_ns"], -1))[at]
    rank = group.known_rank
    columns = {
        "rank": pa.array([rank] * len(at), pa.int32()),
        "device": np.full(len(at), group.device, np.int32),
        "source": pa.array([group.source] * len(at)).dictionary_encode(),
        "index": at - 1,
        "ts_ns": np.ma.array(times, mask=times < 0),
        "allocated_bytes": allocated[at],
    }
    columns |= {f"{part}_bytes": by_part[i] for i, part in enumerate(PARTS)}
    return SCHEMA.build(columns if reserved is None else columns | {"reserved_bytes": reserved[at]})


def _fullest(allocated: Ints) -> Ints:
    """States to show: all, or the fullest of each of SAMPLES stretches, and the last."""
    n = len(allocated)
    if n <= SAMPLES:
        return np.arange(n)
    edges = np.linspace(0, n, SAMPLES, dtype=np.int64)
    stretch = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    order = np.lexsort((-allocated, stretch))
    first = np.searchsorted(stretch, np.arange(len(edges) - 1))
    return np.union1d(order[first], [n - 1])


def _of_series(found: list[Track]) -> list[pa.Table]:
    """One row per rank and step that any figure is known of, logged or sampled."""
    if not found:
        return []
    nobody = -(1 << 20)
    keys = [(nobody if t.rank is None else t.rank) * _STEPS + t.step for t in found]
    rows = np.unique(np.concatenate(keys))
    rank = rows // _STEPS
    columns: dict[str, object] = {"rank": np.ma.array(rank, mask=rank == nobody), "step": rows - rank * _STEPS}
    columns |= {"source": ["series"] * len(rows)}
    for kind in KINDS:
        value, known = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
        for track, key in zip(found, keys, strict=True):
            if track.kind == kind:
                at = np.searchsorted(rows, key)
                value[at], known[at] = track.size, True
        columns[f"{kind}_bytes"] = np.ma.array(value, mask=~known)
    return [SCHEMA.build(columns)]


def _of_counters(allocator_stats: pa.Table | None) -> list[pa.Table]:
    """The last counters of each device."""
    rows = latest(allocator_stats)
    names = ("rank", "device", "allocated_bytes", "reserved_bytes", "peak_allocated_bytes", "peak_reserved_bytes")
    columns: dict[str, object] = {name: [row[name] for row in rows] for name in names}
    return [SCHEMA.build(columns | {"source": [SOURCE] * len(rows)})] if rows else []
