"""What the job's step would last with one thing idealised: the replay of its dependency graph.

This is what a fix wins the *job*, not what a rank waited: a rank that waits less elsewhere may only wait longer here.
It holds within the recorded order of operations: nothing is rescheduled. A replay that misses the recorded step by
more than `MOST_ERROR_RATIO` is no basis for an answer: then only the row `nothing` is here, with the error.

`slowdown_ratio` is S: the step over the ideal one (row `everything`), or the step with only this left as it was over
the ideal one. `explained_ratio` is the share of an ideal job's gain that this fix alone brings (M_W in row
`slowest_workers`, M_S in the row of the last stage); it can exceed 1, where fixing everything also slows something.

Method and definitions: `_pipeline_graph`, `_pipeline_scenarios`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints
from diagnose.analyses._compute_work import COLD_RATIO
from diagnose.analyses._dependency_graph import Times
from diagnose.analyses._pipeline_graph import graph_of
from diagnose.analyses._pipeline_scenarios import rows_of
from diagnose.analyses._pipeline_work import Work, work_of
from diagnose.schema import FLOAT, INT32, INT64, LABEL, RANKS, TEXT, table

MOST_ERROR_RATIO = 0.05
"""Of the measured step; the published method withholds its answer above it."""
MOST_OPERATIONS = 200_000
"""Of larger recordings evenly spaced steps are replayed; there, a step's slowdown is the job's within a few percent."""

SCHEMA = table(
    "replay of the job with one thing idealised",
    ("method", LABEL, "pipeline: operations of pipeline stages"),
    (
        "fixed",
        LABEL,
        "nothing | everything | phase | stage | replica | slowest_workers: made ideal; stage_balance (stages equal) |"
        " microbatch_balance (micro-batches of a worker equal) | worker (like its stage) | slow_workers (those"
        " clearly slower than their stage, like it) | link (like the others)",
    ),
    ("phase", LABEL, "kind of operation, where that is fixed; exchange_*: sends and receives of a direction"),
    ("stage", INT32, "pipeline stage; of a link, the stage before it"),
    ("replica", INT32, "copy of the pipeline"),
    ("rank", INT32, "global rank, where it is one"),
    ("ranks", RANKS, "ranks concerned; null where all, or unknown"),
    ("step_ns", INT64, "mean replayed step"),
    ("gain_ns", INT64, "replayed step as recorded minus this; negative where the fix makes something slower"),
    ("explained_ratio", FLOAT, "gain over that of `everything`; null where that is none"),
    ("slowdown_ratio", FLOAT, "S: see the module; null where not replayed"),
    ("own_ns", INT64, "of a link: its median transfer"),
    ("usual_ns", INT64, "of a link: median transfer of the other links"),
    ("measured_ns", INT64, "row nothing: mean recorded step"),
    ("error_ratio", FLOAT, "row nothing: replayed over recorded step, from 1"),
    ("steps_count", INT32, "row nothing: steps replayed"),
    ("reason", TEXT, "row nothing: why there is no answer; null where there is one"),
)


def what_if(stage_work: pa.Table) -> pa.Table:
    """Rows of one job: `nothing` first, `everything` second, then one per fix; none without operations of a stage."""
    work = work_of(stage_work)
    return _table(_of_pipeline(work) if len(work.start) else [])


def _of_pipeline(work: Work) -> list[dict[str, Any]]:
    work = _thinned(_without_warm_up(work, _lengths(work)))
    measured = float(_lengths(work).mean())
    withheld: dict[str, Any] = {"method": "pipeline", "fixed": "nothing", "measured_ns": round(measured)}
    withheld["steps_count"] = len(work.steps)
    graph = graph_of(work)
    if isinstance(graph, str):
        return [{**withheld, "reason": graph}]
    rows = [{"method": "pipeline", **row} for row in rows_of(graph, work, measured)]
    error = rows[0]["error_ratio"]
    if error > MOST_ERROR_RATIO:
        said = f"the replayed step is {error:.1%} off the recorded one: other things than known dependencies delay it"
        return [{**rows[0], "gain_ns": None, "reason": said}]
    return rows


def _lengths(work: Work) -> Times:
    """Recorded length of each step, ns."""
    begin, end = np.full(len(work.steps), np.iinfo(np.int64).max), np.full(len(work.steps), np.iinfo(np.int64).min)
    np.minimum.at(begin, work.step, work.start)
    np.maximum.at(end, work.step, work.end)
    return np.asarray(end - begin, float)


def _without_warm_up(work: Work, lengths: Times) -> Work:
    """A first step far longer than the later ones is compilation and allocation, not the job."""
    if len(lengths) < 2 or lengths[0] <= COLD_RATIO * np.median(lengths[1:]):
        return work
    return _only(work, np.arange(1, len(lengths)))


def _thinned(work: Work) -> Work:
    """Evenly spaced steps of a recording that is too large to replay whole."""
    count = len(work.steps)
    most = max(1, MOST_OPERATIONS * count // len(work.start))
    return work if most >= count else _only(work, np.unique(np.linspace(0, count - 1, most).astype(np.int64)))


def _only(work: Work, steps: Ints) -> Work:
    """The work of some of the steps."""
    kept = np.isin(work.step, steps)
    cut = Work._make([*(column[kept] for column in work[:-1]), work.steps[steps]])
    return cut._replace(step=np.searchsorted(steps, cut.step))


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return SCHEMA.of_rows(rows)
