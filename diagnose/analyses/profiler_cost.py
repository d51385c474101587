"""How far the profiler itself distorts the recording.

`overhead` events are what the profiler admits; the cost of recording stacks and allocations hides inside the
operators and cannot be measured from one recording: those rows carry no time, only that it is there. One recorded
step cannot tell a slow step from a slow job.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import codes, dictionary, integers
from diagnose.analyses._intervals import clip, total, union
from diagnose.analyses._work import by_rank, of_kind
from diagnose.schema import DEVICE_WORK_KINDS, FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "kind of cost on one rank",
    ("rank", INT32, "global rank"),
    ("kind", LABEL, "overhead event name, or: stacks, one_step, memory"),
    ("count", INT64, "events"),
    ("dur_ns", INT64, "time: union of the events; null where not measurable"),
    ("share_ratio", FLOAT, "of the window, counting what lies inside; null where not measurable"),
)


def profiler_cost(events: pa.Table, steps: pa.Table, settings: pa.Table, files: pa.Table) -> pa.Table:
    """Rows of every rank; none for a rank whose recording shows no cost."""
    rows: list[tuple[int, str, int, int | None, float | None]] = []
    for rank, mine in by_rank(events):
        rows += _overheads(rank, mine)
        python = len(of_kind(mine, "python"))
        if python or _set(settings, rank, "profiler.with_stack"):
            rows.append((rank, "stacks", python, None, None))
        allocations = _named(mine, "[memory]")
        if allocations or _set(settings, rank, "profiler.profile_memory"):
            rows.append((rank, "memory", allocations, None, None))
        if int((integers(steps["rank"], -1) == rank).sum()) == 1:
            rows.append((rank, "one_step", 1, None, None))
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA.columns)
    return SCHEMA.build(dict(zip(SCHEMA.arrow.names, map(list, columns), strict=True)))


def _overheads(rank: int, events: pa.Table) -> list[tuple[int, str, int, int | None, float | None]]:
    rows = of_kind(events, "overhead")
    if not len(rows):
        return []
    names = dictionary(events["name"])
    name = codes(events["name"])[rows]
    start = integers(events["ts_ns"])
    end = start + integers(events["dur_ns"])
    work = of_kind(events, *DEVICE_WORK_KINDS)
    timed = work if len(work) else of_kind(events, "op", "runtime", "annotation")
    low, high = (int(start[timed].min()), int(end[timed].max())) if len(timed) else (0, 0)
    found: list[tuple[int, str, int, int | None, float | None]] = []
    for code in np.unique(name).tolist():
        mine = rows[name == code]
        spent = union(start[mine], end[mine])
        share = total(clip(spent, low, high)) / (high - low) if high > low else None
        found.append((rank, names[code], len(mine), total(spent), share))
    return sorted(found, key=lambda row: -(row[3] or 0))


def _set(settings: pa.Table, rank: int, key: str) -> bool:
    """Whether a flag is on for the rank, or for all ranks."""
    return any(
        k == key and owner in (rank, None) and str(value).lower() not in ("0", "false", "")
        for k, value, owner in zip(*(settings[c].to_pylist() for c in ("key", "value", "rank")), strict=True)
    )


def _named(events: pa.Table, name: str) -> int:
    names = dictionary(events["name"])
    return int((codes(events["name"]) == names.index(name)).sum()) if name in names else 0
