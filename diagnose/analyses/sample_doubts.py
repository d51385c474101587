"""Why samples of GPUs could not be put to the steps of the job: derived rows of `quality`.

Samples without times are said where they are read. Here: steps without times, clocks of different kinds (one with a
zone, one local), and times that do not overlap.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import INGESTED

SCHEMA = INGESTED["quality"]
DO = "sample with `nvidia-smi --query-gpu=timestamp,...` on the host whose log has the steps, both in one time zone"


def sample_doubts(
    samples: pa.Table, files: pa.Table, step_ends: pa.Table | None = None, device_series: pa.Table | None = None
) -> pa.Table:
    """One row per file of samples, where none of the samples belongs to a step."""
    timed = samples.filter(pc.is_valid(samples["ts_ns"]))
    if not timed.num_rows or (device_series is not None and device_series.num_rows):
        return SCHEMA.empty()
    if step_ends is None or not step_ends.num_rows:
        why = "no input says when its steps ended"
    elif not set(timed["zoned"].unique().to_pylist()) & set(step_ends["zoned"].unique().to_pylist()):
        why = "one clock has a zone and the other is local, so hours may lie between them"
    else:
        why = "they were taken at other times than the steps"
    paths = dict(zip(*(files[name].to_pylist() for name in ("file", "path")), strict=True))
    counts = timed.group_by("file").aggregate([("ts_ns", "count")]).to_pylist()
    rows = [
        {"problem": "unjoined_sample", "path": paths.get(row["file"]), "count": row["ts_ns_count"],
         "detail": f"GPU samples could be put to no step: {why}; {DO}"}
        for row in counts
    ]  # fmt: skip
    return SCHEMA.of_rows(rows)
