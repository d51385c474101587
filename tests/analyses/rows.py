"""Small tables by hand: rows as dicts, columns that a test does not name are null."""

import pyarrow as pa

from diagnose import schema


def build(table, rows, **defaults):
    """Table of a schema (or the ingested table of that name) from dicts; `defaults` fill what a row leaves out."""
    table = schema.INGESTED[table] if isinstance(table, str) else table
    rows = [{**defaults, **row} for row in rows]
    names = [name for name in table.arrow.names if any(name in row for row in rows)]
    return table.build({name: column([row.get(name) for row in rows], table.arrow.field(name).type) for name in names})


def column(values, kind):
    return pa.array(values, pa.string() if pa.types.is_dictionary(kind) else kind)


def events(rows):
    """Events of rank 0, process 9, thread 1; `end` may replace `dur_ns`; ids are row numbers."""
    always = {"rank": 0, "file": 0, "process": 9, "thread": 1}
    return build("events", [timed({"event_id": number, **always, **row}) for number, row in enumerate(rows)])


def kernels(rows):
    """Compute kernels of rank 0, step 1, launched by process 9, thread 1; `end` may replace `dur_ns`."""
    from diagnose.analyses.kernels import SCHEMA

    always = {"rank": 0, "step": 1, "device": 0, "stream": 7, "class": "compute", "category": "other", "name": "k"}
    always |= {"graph": False, "launch_process": 9, "launch_thread": 1}
    return build(SCHEMA, [timed({"event_id": number, **always, **row}) for number, row in enumerate(rows)])


def timed(row):
    """The row with `dur_ns` from `end`, where it has one; else 0 unless given."""
    end = row.pop("end", None)
    return {**row, "dur_ns": row.get("dur_ns", 0) if end is None else end - row["ts_ns"]}


def files(gpu="NVIDIA H100 80GB HBM3", rank=0):
    return build("files", [{"file": 0, "rank": rank, "gpu": gpu}])


def steps(*spans, complete=True):
    """Steps 1, 2, ... of rank 0 from (start, end)."""
    from diagnose.analyses.steps import SCHEMA

    rows = [
        {"rank": 0, "step": n, "ts_ns": a, "dur_ns": b - a, "host_ts_ns": a, "host_dur_ns": b - a, "complete": complete}
        for n, (a, b) in enumerate(spans, 1)
    ]
    return build(SCHEMA, rows)
