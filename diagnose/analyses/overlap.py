"""How much communication ran under compute, per step and over the whole window: unions, never sums of kernels.

`hidden_ns` = communication while a compute kernel of the same rank ran; `exposed_ns` = communication while none
did; they add up to `comm_ns`, the time in which any communication ran. Nothing is said (null) about a rank whose
trace mixes several processes: one process's compute would seem to hide another's communication.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses import _intervals as iv
from diagnose.schema import INT32, INT64, table

SCHEMA = table(
    "step of one rank, and its whole window (step null)",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null: first to last device event"),
    ("dur_ns", INT64, "length of the step or window"),
    ("busy_ns", INT64, "any device work"),
    ("compute_ns", INT64, "any compute kernel"),
    ("comm_ns", INT64, "any communication"),
    ("hidden_ns", INT64, "communication under compute"),
    ("exposed_ns", INT64, "communication without compute"),
)


def overlap(kernels: pa.Table, steps: pa.Table, quality: pa.Table | None = None) -> pa.Table:
    """Busy, compute, communication and their overlap per (rank, step) and per rank's window, in ns."""
    mixed = _mixed_ranks(quality)
    rows: list[tuple[int | None, ...]] = []
    for rank in pc.unique(kernels["rank"]).to_pylist():
        mine = kernels.filter(pc.equal(kernels["rank"], rank))
        kinds = mine["class"].combine_chunks()
        starts = mine["ts_ns"].to_numpy()
        ends = starts + mine["dur_ns"].to_numpy()
        sets = [iv.union(starts, ends)] + [
            iv.union(starts[held], ends[held])
            for held in (pc.equal(kinds, name).to_numpy(zero_copy_only=False) for name in ("compute", "comm"))
        ]
        spans = [(None, int(starts.min()), int(ends.max()))] if len(starts) else []
        own = steps.filter(pc.equal(steps["rank"], rank))
        spans += [
            (step, start, start + dur)
            for step, start, dur in zip(*(own[c].to_pylist() for c in ("step", "ts_ns", "dur_ns")), strict=True)
        ]
        rows += [_row(rank, step, start, end, sets, rank in mixed) for step, start, end in spans]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA.columns)
    return SCHEMA.build({c.name: pa.array(v, c.type) for c, v in zip(SCHEMA.columns, columns, strict=True)})


def _row(rank: int, step: int | None, start: int, end: int, sets: list[iv.Int], mixed: bool) -> tuple[int | None, ...]:
    busy, compute, comm = (iv.clip(s, start, end) for s in sets)
    exposed = iv.total(iv.subtract(comm, compute))
    moved = iv.total(comm)
    shares = (None, None, None) if mixed else (moved, moved - exposed, exposed)
    return (rank, step, end - start, iv.total(busy), iv.total(compute), *shares)


def _mixed_ranks(quality: pa.Table | None) -> set[int]:
    if quality is None:
        return set()
    rows = quality.filter(pc.equal(quality["problem"].cast(pa.string()), "merged_processes"))
    return set(np.unique(rows["rank"].drop_null().to_numpy()).tolist())
