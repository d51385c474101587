"""What the job's step would last with one thing idealised, where the evidence is traces of several ranks.

Every rank's own work and the calls in which ranks meet are replayed. So `gain_ns` is what the *job's* step gains, per
step, mean over the analysed steps: what one rank saves is worth nothing while it waits for another afterwards. It
holds for the recorded order of work; nothing is rescheduled. Where ranks of the job are missing, or the replay misses
the recording by more than `MOST_ERROR_RATIO`, only the row `nothing` is here, with the reason.

*Like the others* means: between two calls, the rank takes the median time of the other ranks that make the same calls
in the same order, of a pipeline those of its stage. `balance` gives every rank the mean. Removing a part (`part`) takes
it from all ranks at once.

Method: `_rank_timeline`, `_rank_graph`, replayed level by level (`_dependency_graph`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.analyses._arrivals import arrivals_of
from diagnose.analyses._pipeline_places import pipeline_places
from diagnose.analyses._rank_graph import ranks_of
from diagnose.analyses._rank_scenarios import rows_of
from diagnose.schema import FLOAT, INT32, INT64, LABEL, TEXT, table

MOST_ERROR_RATIO = 0.05
"""Of the measured time; the published what-if method withholds its answer above it."""
MOST_CALLS = 150_000
"""Over all ranks; a replay holds some hundred bytes for each, and for each fix at once."""
LEAST_COMPLETE_RATIO = 0.95
"""Of the matched calls, those with all ranks of their group; below, the job's step is not what was recorded."""

SCHEMA = table(
    "replay of all recorded ranks with one thing idealised",
    (
        "fixed",
        LABEL,
        "nothing | part (taken from all ranks) | rank (like the others) | rank_part (only that part of it) | balance |"
        " balance_part (all ranks the mean) | transfer (no transfer takes time) | group (like its equals)",
    ),
    (
        "part",
        LABEL,
        "part of own time; of rank_part and balance_part: compute | input | gc | copy | begin (earlier steps) | host",
    ),
    ("rank", INT32, "global rank"),
    ("group", LABEL, "process group"),
    ("step_ns", INT64, "replayed time per step"),
    ("gain_ns", INT64, "gained per step; negative where the fix makes something slower"),
    ("measured_ns", INT64, "row nothing: recorded time per step, from the first rank's begin to the last one's end"),
    ("error_ratio", FLOAT, "row nothing: replayed over recorded time, from 1"),
    ("steps_count", INT32, "row nothing: steps replayed"),
    ("reason", TEXT, "row nothing: why there is no answer; null where there is one"),
)


def rank_what_if(  # noqa: PLR0913, PLR0917  (one parameter per table)
    spans: pa.Table, steps: pa.Table, kernels: pa.Table, idle: pa.Table, calls_on_device: pa.Table, matches: pa.Table,
    clocks: pa.Table, collectives: pa.Table, groups: pa.Table | None = None,
) -> pa.Table:  # fmt: skip
    """Row `nothing` first, then one per fix; none where ranks share no call."""
    arrival = arrivals_of(calls_on_device, matches, clocks) if calls_on_device.num_rows else None
    if arrival is None or not (arrival.comparable & arrival.synchronising).any():
        return SCHEMA.empty()
    if calls_on_device.num_rows > MOST_CALLS:
        said = f"{calls_on_device.num_rows:,} calls are too many to replay at once; choose some steps with --steps"
        return _table([{"fixed": "nothing", "reason": said}])
    shared = arrival.comparable & arrival.synchronising
    complete = float(arrival.complete[shared].mean())
    if complete < LEAST_COMPLETE_RATIO:
        return _table(
            [{"fixed": "nothing", "reason": f"{1 - complete:.0%} of the shared calls lack a rank of their group"}]
        )
    places = pipeline_places(groups)
    ranks = ranks_of(calls_on_device, arrival, spans, steps, kernels, idle, collectives, places)
    if isinstance(ranks, str):
        return _table([{"fixed": "nothing", "reason": ranks}])
    rows = rows_of(ranks, calls_on_device)
    error = rows[0]["error_ratio"]
    if error > MOST_ERROR_RATIO:
        rows = [{**rows[0], "gain_ns": None, "reason": f"the replay is {error:.1%} off the recording"}]
    return _table(rows)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return SCHEMA.of_rows(rows)
