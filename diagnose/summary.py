"""Tables and outcomes -> the Diagnosis value. Only arranges and adds up; it judges nothing.

`median_ns` of a job is the median over steps of the longest rank; `per_rank` figures are means per step;
`parts` is the mean over ranks and steps, rounded so that the parts still sum to the mean step. Steps that the recording
cuts are left out of all three, as in table `spans`.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import numpy as np

from diagnose import __version__, sql
from diagnose.findings import Diagnosis, Finding, Outcome, Symptom
from diagnose.schema import PARTS, Tables

_PRINTED = ("text", "trainer_state", "pipeline_sizes")
"""Kinds of files that hold what a job said of itself, not what its owner wrote down for us."""


def summarise(
    tables: Tables,
    outcomes: list[Outcome],
    findings: list[Finding],
    symptoms: list[Symptom],
    questions: list[dict[str, Any]],
) -> Diagnosis:
    """The Diagnosis of one set of tables; `findings` come in the order in which they are shown."""
    return Diagnosis(
        tool={"name": "diagnose", "version": __version__},
        inputs=inputs(tables),
        job=_job(tables),
        quality=quality(tables),
        step_time=_step_time(tables),
        window=_window(tables),
        symptoms=symptoms,
        questions=questions,
        findings=findings,
        outcomes=outcomes,
        memory=memory(tables),
        tables=tables,
    )


def inputs(tables: Tables) -> list[dict[str, Any]]:
    """One dict per input document, in the order given."""
    keys = ("path", "kind", "rank", "events_count", "status", "detail")
    return [{k: row[k] for k in keys} for row in tables["files"].select(keys).to_pylist()]


def quality(tables: Tables) -> list[dict[str, Any]]:
    """Everything repaired, dropped, doubtful or inferred: what ingesters and analyses noted."""
    noted = [
        tables[name]
        for name in ("quality", "doubts", "router_doubts", "sample_doubts", "replay_doubts")
        if name in tables
    ]
    return [row for table in noted for row in table.to_pylist()]


def memory(tables: Tables) -> list[dict[str, Any]]:
    """Parts of memory per rank, device and moment, the last failure of each; in the order of the table."""
    if "memory_parts" not in tables:
        return []
    rows = tables["memory_parts"].to_pylist()
    last: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = row["rank"], row["device"], row["moment"]
        last[key] = max(last.get(key, 0), row["failure"] or 0)
    keys = ("rank", "moment", "part", "bytes", "confidence_ratio", "source")
    return [
        {**{k: row[k] for k in keys}, "device": row["device"]}
        for row in rows
        if (row["failure"] or 0) == last[row["rank"], row["device"], row["moment"]]
    ]


def _job(tables: Tables) -> dict[str, Any]:
    files = [f for f in tables["files"].to_pylist() if f["status"] != "unusable"]
    settings = _settings(tables)
    sizes = {f["world_size"] for f in files if f["world_size"] is not None}
    gpus = sorted({f["gpu"] for f in files if f["gpu"]})
    return {
        "world_size": sizes.pop() if len(sizes) == 1 else None,
        "ranks_seen": sorted({f["rank"] for f in files if f["rank"] is not None and f["rank"] >= 0}),
        "gpu": " / ".join(gpus) or None,
        "layout": _layout(tables, settings),
        "model": {key.removeprefix("model."): value for key, value in settings.items() if key.startswith("model.")},
    }


def _settings(tables: Tables) -> dict[str, str]:
    if "settings" not in tables:
        return {}
    return {row["key"]: row["value"] for row in tables["settings"].select(["key", "value"]).to_pylist()}


def _layout(tables: Tables, settings: dict[str, str]) -> dict[str, Any]:
    """Parallel sizes: given in the job file or printed in a log, else read from the process groups, else unknown."""
    printed = _printed_in(tables)
    sizes: dict[str, set[int]] = {}
    if "groups" in tables:
        for row in tables["groups"].to_pylist():
            if row["dim_source"] != "unknown" and row["size"] is not None:
                sizes.setdefault(row["dim"], set()).add(row["size"])
    layout: dict[str, Any] = {}
    for dim in ("dp", "tp", "pp", "ep", "cp"):
        given, read = settings.get(f"layout.{dim}"), sizes.get(dim, set())
        if given is not None and given.isdecimal():
            layout[dim] = {"value": int(given), "source": printed.get(f"layout.{dim}", "given")}
        elif len(read) == 1:
            layout[dim] = {"value": next(iter(read)), "source": "process groups"}
        else:
            layout[dim] = {"value": None, "source": "unknown"}
    return layout


def _printed_in(tables: Tables) -> dict[str, str]:
    """Settings that a log printed, not a job file: key -> where it stands."""
    kinds = dict(zip(tables["files"]["path"].to_pylist(), tables["files"]["kind"].to_pylist(), strict=True))
    rows = tables["settings"].select(["key", "source"]).to_pylist() if "settings" in tables else []
    read = {row["key"]: row["source"] for row in rows if kinds.get(row["source"]) in _PRINTED}
    return {key: f"read from {PurePath(source).name}" for key, source in read.items()}


def _step_time(tables: Tables) -> dict[str, Any]:
    rows = tables.get("step_time")
    if rows is None or rows.num_rows == 0:
        return _parts([], 0) | {"steps_count": 0, "median_ns": None, **_shares(tables, in_steps=True)}
    analysed = tables["spans"].select(["rank", "step"]) if "spans" in tables else rows
    with sql.over(all_steps=rows, analysed=analysed) as con:
        # A step that the recording cuts is no part of a mean: these figures are over the same steps as findings.
        con.execute("CREATE TEMP TABLE step_time AS FROM all_steps SEMI JOIN analysed USING (rank, step)")
        median, count = con.sql(
            """SELECT median(longest_ns), count(*) FROM
               (SELECT step, max(dur_ns) AS longest_ns FROM
                 (SELECT rank, step, sum(dur_ns)::BIGINT AS dur_ns FROM step_time GROUP BY ALL) GROUP BY step)"""
        ).fetchall()[0]
        cells = con.sql("SELECT count(*) FROM (SELECT DISTINCT rank, step FROM step_time)").fetchall()[0][0]
        totals = con.sql("SELECT part, sum(dur_ns)::BIGINT FROM step_time GROUP BY part").fetchall()
        per_rank = con.sql(
            """SELECT rank, part, sum(dur_ns)::BIGINT, any_value(steps) FROM step_time
               JOIN (SELECT rank, count(DISTINCT step) AS steps FROM step_time GROUP BY rank) USING (rank)
               GROUP BY rank, part"""
        ).fetchall()
    return {
        "steps_count": count,
        "median_ns": round(median),
        **_parts(totals, cells),
        "per_rank": _per_rank([(rank, part, total / steps) for rank, part, total, steps in per_rank]),
        **_shares(tables, in_steps=True),
    }


def _window(tables: Tables) -> dict[str, Any]:
    rows = tables.get("window_time")
    if rows is None or rows.num_rows == 0:
        return _parts([], 0) | {"dur_ns": None, **_shares(tables, in_steps=False)}
    with sql.over(window_time=rows) as con:
        per_rank = con.sql("SELECT rank, part, dur_ns FROM window_time").fetchall()
        totals = con.sql("SELECT part, sum(dur_ns)::BIGINT FROM window_time GROUP BY part").fetchall()
        longest = con.sql(
            "SELECT max(d) FROM (SELECT sum(dur_ns)::BIGINT AS d FROM window_time GROUP BY rank)"
        ).fetchall()
    return {
        "dur_ns": longest[0][0],
        **_parts(totals, len({rank for rank, _, _ in per_rank})),
        "per_rank": _per_rank(per_rank),
        **_shares(tables, in_steps=False),
    }


def _parts(totals: list[tuple[str, int]], cells: int) -> dict[str, Any]:
    """Mean parts in order of precedence; whole ns that sum to the rounded mean."""
    if not totals:
        return {"parts": [], "per_rank": []}
    ordered = sorted(totals, key=lambda row: PARTS.index(row[0]))
    ends = np.rint(np.cumsum([total for _, total in ordered], dtype=np.float64) / cells).astype(np.int64)
    means = np.diff(ends, prepend=0)
    whole = int(ends[-1])
    return {
        "parts": [
            {"part": part, "dur_ns": int(mean), "ratio": float(mean / whole) if whole else None}
            for (part, _), mean in zip(ordered, means, strict=True)
        ]
    }


def _per_rank(rows: list[tuple[int, str, float]]) -> list[dict[str, Any]]:
    ordered = sorted(rows, key=lambda row: (row[0], PARTS.index(row[1])))
    return [{"rank": rank, "part": part, "dur_ns": round(dur)} for rank, part, dur in ordered]


def _shares(tables: Tables, *, in_steps: bool) -> dict[str, float | None]:
    """hidden / all communication, and exposed communication / time; None where nothing can be said."""
    unknown: dict[str, float | None] = {"hidden_comm_ratio": None, "comm_share_ratio": None}
    overlap = tables.get("overlap")
    if overlap is None or overlap.num_rows == 0:
        return unknown
    analysed = tables["spans"].select(["rank", "step"]) if "spans" in tables else overlap
    of = "(FROM overlap SEMI JOIN analysed USING (rank, step))" if in_steps else "overlap"
    with sql.over(overlap=overlap, analysed=analysed) as con:
        comm, hidden, exposed, span, doubtful = con.sql(
            f"""SELECT sum(comm_ns)::BIGINT, sum(hidden_ns)::BIGINT, sum(exposed_ns)::BIGINT, sum(dur_ns)::BIGINT,
                   count(*) FILTER (comm_ns IS NULL) FROM {of} WHERE step IS {"NOT" if in_steps else ""} NULL"""
        ).fetchall()[0]
    if doubtful or not span:
        return unknown
    return {"hidden_comm_ratio": hidden / comm if comm else None, "comm_share_ratio": exposed / span}
