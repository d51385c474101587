"""Tables for rule tests from rows as dicts, and the questions that these tests put to one rule."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from diagnose import engine, pipeline
from diagnose.analyses.mean_steps import mean_steps
from diagnose.analyses.reductions import reductions
from diagnose.engine import load
from diagnose.findings import Finding, Outcome, Rule
from diagnose.schema import INGESTED, Tables, TableSchema

RULES = Path(__file__).parents[2] / "rules"
MS = 1_000_000
MIB = 1024 * 1024
Row = dict[str, Any]


@cache
def schemas() -> dict[str, TableSchema]:
    """Every table that can exist."""
    return {**INGESTED, **{analysis.name: analysis.schema for analysis in pipeline.discover().values()}}


def table(name: str, rows: list[Row]) -> pa.Table:
    """Table `name` from rows; a key that a row lacks is null."""
    schema = schemas()[name]
    return schema.build({c: [row.get(c) for row in rows] for c in dict.fromkeys(k for row in rows for k in row)})


def tables(**rows: list[Row]) -> Tables:
    """Every table, empty but for the given rows; `reductions` and `mean_steps` follow as in the product."""
    made = {name: schema.empty() for name, schema in schemas().items()}
    made |= {name: table(name, given) for name, given in rows.items()}
    if "reductions" not in rows:
        made["reductions"] = reductions(made["collectives"])
    if "mean_steps" not in rows:
        made["mean_steps"] = mean_steps(made["spans"])
    return made


def step(number: int | None = 1, rank: int = 0, **parts: int) -> Row:
    """One row of `spans` from its parts (`compute_ns=...`); `spans` sets the means."""
    return {"rank": rank, "step": number, **parts}


def spans(*rows: Row) -> list[Row]:
    """Rows of `spans` with durations, means and scope filled in."""
    columns = [
        c.name for c in schemas()["spans"].columns if c.name.endswith("_ns") and c.name not in ("dur_ns", "mean_ns")
    ]
    full = [{**dict.fromkeys(columns, 0), **row} for row in rows]
    for row in full:
        row["dur_ns"] = sum(row[c] for c in columns)
        row["scope"] = "over the recording (no steps)" if row["step"] is None else "per step"
    for row in full:
        own = [other["dur_ns"] for other in full if other["rank"] == row["rank"]]
        row["mean_ns"], row["spans_count"] = sum(own) // len(own), len(own)
    return full


def call(op: str, dur_ns: int, hidden_ns: int = 0, **more: Any) -> Row:
    """One row of `collectives` of rank 0 in step 1, data-parallel, exposed where not hidden."""
    return {
        "rank": 0,
        "step": 1,
        "group": "dp0",
        "dim": "dp",
        "op": op,
        "group_size": 8,
        "dur_ns": dur_ns,
        "hidden_ns": hidden_ns,
        "exposed_ns": dur_ns - hidden_ns,
        **more,
    }


@cache
def rule(rule_id: str) -> Rule:
    """The rule that ships under this id."""
    (path,) = RULES.rglob(f"{rule_id}.sql")
    return load.load(path)


def outcome(rule_id: str, given: Tables, **params: Any) -> Outcome:
    """What comes of one rule on tables that hold no more than it needs."""
    given = given | {"mean_steps": mean_steps(given["spans"])}  # tests exchange the spans of finished tables
    needed = {name: given[name] for name in rule(rule_id).needs} | {"spans": given["spans"]}
    (result,) = engine.evaluate([rule(rule_id)], needed, {f"{rule_id}.{k}": v for k, v in params.items()})
    assert result.status != "failed", result.reason
    return result


def finding(rule_id: str, given: Tables, **params: Any) -> Finding:
    """The dearest finding of a rule that must fire."""
    result = outcome(rule_id, given, **params)
    assert result.status == "found", (result.status, result.reason)
    return result.findings[0]


def quiet(rule_id: str, given: Tables, **params: Any) -> None:
    """The rule must say nothing, because it looked."""
    result = outcome(rule_id, given, **params)
    assert result.status == "clear", (result.status, result.reason, result.findings)


def turns_exactly_at(rule_id: str, given: Tables, **measured: float) -> None:
    """`given` fires; at a parameter equal to what was measured it is quiet, a hair below (or above) it fires.

    One parameter at a time, the others relaxed to where they cannot decide.
    """
    for name, value in measured.items():
        params = rule(rule_id).params
        whole = isinstance(params[name]["default"], int)
        hair = 1 if whole else 1e-9
        relaxed = {n: _relaxed(n, params[n]["default"]) for n in measured if n != name}
        below, above = value - hair, value + hair
        fires, silent = (below, above) if name.startswith("min_") else (above, below)
        assert outcome(rule_id, given, **{name: fires}, **relaxed).status == "found", f"{name} = {fires}"
        assert outcome(rule_id, given, **{name: silent}, **relaxed).status == "clear", f"{name} = {silent}"
        at = outcome(rule_id, given, **{name: value}, **relaxed).status
        assert at == ("found" if name in INCLUSIVE else "clear"), f"exactly at {name} = {value}: {at}"


INCLUSIVE = ("max_size_bytes", "max_dur_ns")
"""Parameters whose own value still counts as an offence."""


def _relaxed(name: str, default: float) -> float:
    if name.startswith("min_"):
        return 0 if isinstance(default, int) else 0.0
    return default
