"""Work that differs between ranks or micro-batches in turn: what that costs, whose turn it is, and what it goes with.

Three kinds of evidence. `calls`: traces, the waiting for whoever came last. `steps`: records of every rank's steps, the
longest work of a step above its mean. `pipeline`: micro-batches of stages; where forward and backward of the same
micro-batch are long together, on each worker by itself, the micro-batch is long (sequences differ), not the worker.
A correlation says what goes together. One rank that is slow every time has most of the blame: then it is not in turn.

Definitions of the pipeline's measures: https://arxiv.org/abs/2505.05713, section 5.3.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose import sql
from diagnose.analyses import expert_balance as experts
from diagnose.analyses._columns import NO_RANK, Ints
from diagnose.analyses._grids import Floats, aligned, grids
from diagnose.analyses._pipeline_work import joined, work_of
from diagnose.schema import FLOAT, INT32, INT64, LABEL, RANKS, table

LEAST_STEPS = 8
"""Fewer show no turns."""

SCHEMA = table(
    "kind of evidence about work that differs in turn",
    ("evidence", LABEL, "calls | steps | pipeline"),
    ("scope", LABEL, "how figures are to be read: per step | over the recording (no steps)"),
    ("step_ns", INT64, "mean step"),
    ("waits_ns", INT64, "what waiting for the longest costs, per step"),
    ("gain_ns", INT64, "what the job gains per step if all take the mean; null where not replayed"),
    ("rank", INT32, "who has the largest share of the blame; null for pipelines"),
    ("ranks", RANKS, "ranks that were last or longest at least once"),
    ("ranks_count", INT32, "how many"),
    ("blamed_ratio", FLOAT, "share of the blame of that rank; null where nobody is blamed"),
    ("judged_count", INT64, "calls, steps or micro-batches compared"),
    ("cause", LABEL, "part of the ranks' own time whose differences cost most; null where none stands out"),
    ("expert_gain_ns", INT64, "of it, what uneven experts cost; null where there are none"),
    ("variation_ratio", FLOAT, "coefficient of variation of the work of one rank or worker, median over them"),
    ("token_correlation_ratio", FLOAT, "work with tokens, between ranks of a step; null where tokens are not known"),
    ("backward_correlation_ratio", FLOAT, "forward with backward of a micro-batch on one worker, median over workers"),
)

_CALLS = """
WITH waits AS (  -- groups of one dimension wait side by side: the worst of them is what the job waits
  SELECT SUM(lost_ns) // (SELECT MAX(spans_count) FROM mean_steps) AS per_step_ns FROM (
    SELECT MAX(lost_ns) AS lost_ns FROM (
      SELECT a.step, a.dim, a."group", SUM(a.exposed_late_ns) AS lost_ns
      FROM arrivals AS a SEMI JOIN spans AS s ON s.step IS NOT DISTINCT FROM a.step
      WHERE a.last_rank IS NOT NULL AND NOT a.inherited GROUP BY ALL
    ) GROUP BY step, dim
  )
), gain AS (  -- all ranks at the mean, and the part of their time that matters most
  SELECT ANY_VALUE(gain_ns) FILTER (fixed = 'balance') AS gain_ns,
    MAX(gain_ns) FILTER (fixed = 'balance_part') AS part_ns,
    ARG_MAX(part, gain_ns) FILTER (fixed = 'balance_part') AS part
  FROM rank_what_if
), blame AS (
  SELECT MAX(l.blamed_ratio) AS blamed_ratio, ARG_MAX(l.rank, l.blamed_ns) AS rank,
    COUNT(*) FILTER (l.last_count > 0) AS ranks_count, SUM(l.last_count)::BIGINT AS judged_count,
    ANY_VALUE(job.scope) AS scope, (SELECT MAX(step_ns) FROM mean_steps) AS step_ns,
    LIST(l.rank ORDER BY l.rank) FILTER (l.last_count > 0) AS ranks
  FROM late_ranks AS l JOIN mean_steps AS job USING (rank) HAVING COUNT(*) > 0
)
SELECT scope, step_ns, LEAST(per_step_ns, step_ns)::BIGINT AS waits_ns,
  CASE WHEN gain_ns IS NOT NULL THEN GREATEST(LEAST(gain_ns, step_ns), 0) END AS gain_ns, rank, ranks, ranks_count,
  blamed_ratio, judged_count, CASE WHEN part_ns > 0 AND 2 * part_ns >= gain_ns THEN part::VARCHAR END AS cause,
  (SELECT MAX(e.gain_ns)::BIGINT FROM experts AS e WHERE e.source = 'trace' AND e.ep_imbalance_ratio > 1.1)
    AS expert_gain_ns
FROM blame, waits, gain
"""


def uneven_work(  # noqa: PLR0913, PLR0917  (one parameter per table)
    late_ranks: pa.Table | None = None, arrivals: pa.Table | None = None, spans: pa.Table | None = None,
    mean_steps: pa.Table | None = None, rank_what_if: pa.Table | None = None, expert_balance: pa.Table | None = None,
    series: pa.Table | None = None, stage_work: pa.Table | None = None, what_if: pa.Table | None = None,
) -> pa.Table:  # fmt: skip
    """At most one row per kind of evidence."""
    rows: list[dict[str, Any]] = []
    given = {"late_ranks": late_ranks, "arrivals": arrivals, "spans": spans, "mean_steps": mean_steps,
             "rank_what_if": rank_what_if}  # fmt: skip
    known = {name: table for name, table in given.items() if table is not None}
    if len(known) == len(given):
        balance = experts.SCHEMA.empty() if expert_balance is None else expert_balance
        with sql.over(**known, experts=balance) as connection:
            found = connection.sql(_CALLS)
            rows += [{"evidence": "calls", **dict(zip(found.columns, row, strict=True))} for row in found.fetchall()]
    rows += _of_steps(series) if series is not None else []
    rows += _of_pipeline(stage_work, what_if) if stage_work is not None and what_if is not None else []
    return SCHEMA.of_rows(rows)


def _of_steps(series: pa.Table) -> list[dict[str, Any]]:
    """Own work of all ranks in each step that all of them recorded."""
    found = grids(series, ("step_time_ns", "comm_time_ns", "compute_time_ns", "tokens_count"))
    step = found.get("step_time_ns")
    if step is None or (step.ranks != NO_RANK).sum() < 2:
        return []
    of_all = {name: aligned(grid, step) for name, grid in found.items() if np.array_equal(grid.ranks, step.ranks)}
    if "compute_time_ns" in of_all:
        work = of_all["compute_time_ns"]
    elif "comm_time_ns" in of_all:
        work = step.value - of_all["comm_time_ns"]
    else:
        return []
    complete = np.isfinite(work).all(axis=0) & np.isfinite(step.value).all(axis=0)
    if complete.sum() < LEAST_STEPS:
        return []
    own, ranks = work[:, complete], step.ranks
    late = np.sort(own, axis=0)[-1] - np.sort(own, axis=0)[-2]
    last = own.argmax(axis=0)
    blame = np.bincount(last, late, len(ranks))
    seen = np.unique(ranks[last[late > 0]])
    tokens = of_all["tokens_count"][:, complete] if "tokens_count" in of_all else None
    return [
        {
            "evidence": "steps",
            "scope": "per step",
            "step_ns": round(float(step.value[:, complete].max(axis=0).mean())),
            "waits_ns": round(float((own.max(axis=0) - own.mean(axis=0)).mean())),
            "rank": int(ranks[int(blame.argmax())]),
            "ranks": seen.tolist(),
            "ranks_count": len(seen),
            "blamed_ratio": float(blame.max() / blame.sum()) if blame.sum() > 0 else None,
            "judged_count": int(complete.sum()),
            "cause": "compute" if "compute_time_ns" in of_all else None,
            "variation_ratio": float(np.median(own.std(axis=1) / own.mean(axis=1))) if (own > 0).all() else None,
            "token_correlation_ratio": None if tokens is None else _between_ranks(own, tokens),
        }
    ]


def _between_ranks(work: Floats, tokens: Floats) -> float | None:
    """Correlation of what differs between the ranks of a step; unknown where nothing does."""
    if not np.isfinite(tokens).all():
        return None
    a, b = work - work.mean(axis=0), tokens - tokens.mean(axis=0)
    scale = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / scale) if scale > 0 else None


def _of_pipeline(stage_work: pa.Table, what_if: pa.Table) -> list[dict[str, Any]]:
    """Forward and backward of each micro-batch, worker by worker."""
    rows = {row["fixed"]: row for row in what_if.to_pylist() if row["fixed"] in ("nothing", "microbatch_balance")}
    work = work_of(stage_work)
    if "microbatch_balance" not in rows or not len(work.start):
        return []
    wide = int(work.microbatch.max(initial=0)) + 2
    key = (work.place * (int(work.chunk.max(initial=0)) + 1) + work.chunk) * wide + work.microbatch + 1
    forward, backward = (
        r[work.microbatch[r] >= 0] for r in (work.rows("forward"), work.rows("backward", "backward_input"))
    )
    distinct = forward[np.unique(key[forward], return_index=True)[1]]
    one, other = joined(key[distinct], distinct, key[backward], backward)
    if len(one) < LEAST_STEPS:
        return []
    length = (work.end - work.start).astype(float)
    together, variation = _per_worker(
        work.cell[one] * (int(work.chunk.max()) + 1) + work.chunk[one], length[one], length[other]
    )
    gain = max(rows["microbatch_balance"]["gain_ns"], 0)
    return [
        {
            "evidence": "pipeline",
            "scope": "per step",
            "step_ns": rows["nothing"]["measured_ns"],
            "waits_ns": gain,
            "gain_ns": gain,
            "judged_count": len(one),
            "cause": "compute",
            "variation_ratio": variation,
            "backward_correlation_ratio": together,
        }
    ]


def _per_worker(worker: Ints, forward: Floats, backward: Floats) -> tuple[float | None, float | None]:
    """Medians over workers of the correlation of the two, and of the forward's coefficient of variation."""
    index = np.unique(worker, return_inverse=True)[1]
    count = np.bincount(index)

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(index, values) / count)

    a, b = forward - mean(forward)[index], backward - mean(backward)[index]
    spread = np.sqrt(mean(a**2) * mean(b**2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        together = float(np.nanmedian(np.where(spread > 0, mean(a * b) / np.maximum(spread, 1e-30), np.nan)))
    varied = float(np.median(np.sqrt(mean(a**2)) / np.maximum(mean(forward), 1e-30)))
    return (together if np.isfinite(together) else None), varied
