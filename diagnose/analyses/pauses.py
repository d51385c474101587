"""Pauses of the Python process (garbage collection) and what the job loses by them: in traces, or in step records.

In a trace: the device idles while Python collects. In step records: single long steps that one rank's host or collector
took, another rank's each time; a pause of the host that no record names as collection may have another cause, which
lowers the confidence. One row per kind of evidence: the worst.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import FLOAT, INT64, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "kind of evidence of pauses of the Python process",
    ("source", LABEL, "trace | records (single long steps) | growth (collections that take longer and longer)"),
    ("scope", TEXT, "what the loss is counted over, in words"),
    ("ranks", RANKS, "ranks that paused"),
    ("lost_ns", INT64, "the job loses this, per step"),
    ("step_ns", INT64, "a step of the job"),
    ("pauses_count", INT64, "pauses seen"),
    ("longest_ns", INT64, "the longest of them"),
    ("period_count", INT64, "steps between two pauses of one rank, median"),
    ("confidence_ratio", FLOAT, "less where nothing says that it was collection"),
    ("undecided", TEXT, "why the absence of pauses says nothing; null where pauses were seen or would have been"),
)

PAUSES = ("gc", "host_gap")
LEAST_PAUSES = 4
UNSEEN = "garbage collection shows only in recordings with stacks or in live hook records"


def pauses(
    spans: pa.Table | None = None,
    idle: pa.Table | None = None,
    profiler_cost: pa.Table | None = None,
    stalls: pa.Table | None = None,
    slowdowns: pa.Table | None = None,
) -> pa.Table:
    """At most one row per source."""
    rows = _traced(spans, idle, profiler_cost) if spans is not None and idle is not None else []
    rows += _recorded(stalls) if stalls is not None else []
    rows += _grown(slowdowns) if slowdowns is not None else []
    return SCHEMA.of_rows(rows)


def _traced(spans: pa.Table, idle: pa.Table, profiler_cost: pa.Table | None) -> list[dict[str, Any]]:
    if not spans.num_rows:
        return []
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in spans.select(["rank", "step", "scope", "mean_ns", "gc_ns"]).to_pylist():
        by_rank.setdefault(row["rank"], []).append(row)
    lost = {rank: sum(r["gc_ns"] or 0 for r in own) // len(own) for rank, own in by_rank.items()}
    worst = min(lost, key=lambda rank: (-lost[rank], rank if rank is not None else -1))
    steps = {row["step"] for row in by_rank[worst]}
    collections = idle.filter(pc.equal(idle["cause"].cast(pa.string()), "gc")).to_pylist()
    own = [r["dur_ns"] or 0 for r in collections if r["rank"] == worst and r["step"] in steps]
    stacks = profiler_cost is not None and "stacks" in profiler_cost["kind"].to_pylist()
    means = [row[0]["mean_ns"] for row in by_rank.values() if row[0]["mean_ns"] is not None]
    return [
        {
            "source": "trace",
            "scope": by_rank[worst][0]["scope"],
            "ranks": [worst],
            "lost_ns": lost[worst],
            "step_ns": max(means, default=None),
            "pauses_count": len(own),
            "longest_ns": max(own, default=None),
            "confidence_ratio": 1.0,
            "undecided": None if collections or stacks else UNSEEN,
        }
    ]


def _recorded(stalls: pa.Table) -> list[dict[str, Any]]:
    """Single long steps that one rank's host took; several ranks, or the collector by name."""
    rows = [
        row
        for row in stalls.to_pylist()
        if row["part"] in PAUSES and row["kind"] != "warm_up" and row["excess_ns"] and row["rank"] is not None
    ]
    ranks = sorted({row["rank"] for row in rows})
    named = sum(row["part"] == "gc" for row in rows) * 2 >= len(rows)
    if len(rows) < LEAST_PAUSES or (len(ranks) < 2 and not named):
        return []
    run = rows[0]["run_count"]
    periods = [row["period_count"] for row in rows if row["period_count"]]
    rhythmic = len(periods) >= len(rows) / 2
    return [
        {
            "source": "records",
            "scope": f"per step, over {run:,} steps",
            "ranks": ranks,
            "lost_ns": sum(row["excess_ns"] for row in rows) // run,
            "step_ns": round(float(np.median([row["usual_ns"] for row in rows]))),
            "pauses_count": len(rows),
            "longest_ns": max(row["excess_ns"] for row in rows),
            "period_count": round(float(np.median(periods))) if periods else None,
            "confidence_ratio": 0.95 if named else 0.8 if rhythmic else 0.6,
        }
    ]


def _grown(slowdowns: pa.Table) -> list[dict[str, Any]]:
    rows = [row for row in slowdowns.to_pylist() if row["part"] == "gc" and row["cause"] in ("gc", "leak")]
    return [
        {
            "source": "growth",
            "scope": f"per step, more and more from step {row['from_step']}",
            "ranks": row["ranks"],
            "lost_ns": row["lost_ns"],
            "step_ns": row["usual_ns"],
            "longest_ns": row["part_grown_ns"],
            "confidence_ratio": row["confidence_ratio"],
        }
        for row in rows[:1]
    ]
