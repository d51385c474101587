"""What judgement measures against: the analysed steps of every rank, else the whole recording, with their parts.

A step that the recording cuts is left out unless a rank has no whole one. `mean_ns` is the mean over these spans of
the rank; figures "per step" in findings are sums over them divided by their number. Where no rank has steps, each has
one span with a null step: its recording. Ranks with and without steps are not comparable: then only the former are
here. Not a new measurement: parts come from `step_time` and `window_time`, whose communication parts are summed over
dimensions and still disjoint, so a span's columns sum to its duration.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "analysed step of one rank, or its recording where no step is known",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null: the whole recording"),
    ("scope", LABEL, "how figures are to be read: per step | over the recording (no steps)"),
    ("dur_ns", INT64, "duration: the sum of the parts"),
    ("mean_ns", INT64, "mean duration of the rank's spans"),
    ("spans_count", INT32, "spans of the rank"),
    ("compute_ns", INT64, "part compute"),
    ("comm_ns", INT64, "exposed communication of all dimensions: transfer, or both where calls are not matched"),
    ("wait_ns", INT64, "exposed waiting for peers, where calls are matched"),
    ("unclassified_ns", INT64, "part unclassified"),
    ("copy_ns", INT64, "part copy"),
    ("input_ns", INT64, "idle: data loader"),
    ("gc_ns", INT64, "idle: garbage collection"),
    ("alloc_ns", INT64, "idle: cudaMalloc / cudaFree"),
    ("sync_ns", INT64, "idle: after a blocking synchronise"),
    ("launch_ns", INT64, "idle: the host issued the next kernel late"),
    ("idle_ns", INT64, "idle: cause unknown"),
)

_PARTS = ("compute", "comm", "wait", "unclassified", "copy", "input", "gc", "alloc", "sync", "launch", "idle")


def spans(step_time: pa.Table, window_time: pa.Table, steps: pa.Table) -> pa.Table:
    """One row per analysed step, or one per rank for its recording; sorted by rank and step."""
    by_step = _wide(step_time, ["rank", "step"])
    by_step = by_step.filter(_analysed(by_step, steps))
    window = _wide(window_time, ["rank"])
    window = window.append_column("step", pa.nulls(window.num_rows, pa.int64())).select(by_step.column_names)
    rows = (by_step if by_step.num_rows else window).sort_by([("rank", "ascending"), ("step", "ascending")])

    ranks, owner, counts = np.unique(rows["rank"].to_numpy(), return_inverse=True, return_counts=True)
    dur_ns = np.sum([rows[f"{part}_ns"].to_numpy() for part in _PARTS], axis=0, dtype=np.int64)
    total_ns = np.zeros(len(ranks), np.int64)
    np.add.at(total_ns, owner, dur_ns)
    own = {
        "scope": pc.if_else(pc.is_valid(rows["step"]), "per step", "over the recording (no steps)"),
        "dur_ns": dur_ns,
        "mean_ns": (total_ns // np.maximum(counts, 1))[owner],
        "spans_count": counts[owner],
    }
    return SCHEMA.build({**{name: rows[name] for name in rows.column_names}, **own})


def _wide(time: pa.Table, keys: list[str]) -> pa.Table:
    """The parts of `time` as columns, one row per `keys`."""
    part = pc.cast(time["part"], pa.string())
    column = pc.replace_substring_regex(
        pc.replace_substring_regex(part, "_transfer$", "_comm"), "^.*_(comm|wait)$", r"\1"
    )
    zero = pa.scalar(0, pa.int64())
    columns = {name: pc.if_else(pc.equal(column, name), time["dur_ns"], zero) for name in _PARTS}
    wide = pa.table({**{key: time[key] for key in keys}, **columns})
    sums = wide.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in _PARTS])
    return sums.rename_columns([*keys, *(f"{name}_ns" for name in _PARTS)])


def _analysed(by_step: pa.Table, steps: pa.Table) -> pa.ChunkedArray:
    """Which rows are whole steps; every row of a rank that has no whole one."""
    cut = steps.filter(pc.equal(steps["complete"], False))
    cut_keys = set(zip(cut["rank"].to_pylist(), cut["step"].to_pylist(), strict=True))
    keys = list(zip(by_step["rank"].to_pylist(), by_step["step"].to_pylist(), strict=True))
    with_whole = {key[0] for key in keys if key not in cut_keys}
    return pa.chunked_array([pa.array([k not in cut_keys or k[0] not in with_whole for k in keys], pa.bool_())])
