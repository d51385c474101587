"""Run rules over tables: every rule ends found, clear, skipped (what is missing) or failed (what is wrong).

A row of a rule is an offender. Columns with a meaning to the engine: `lost_ns` (required: what the job's step would
gain, mean over the analysed steps), `lost_kind`, `lost_bytes`, `severity`, `confidence_ratio`, `ranks`, `hosts`,
`steps`, `fix` (what to do where the rule's own advice does not fit this offender), and `undecided`: a row with text
there is no offender, it says why the rule cannot answer on these data.
All other columns are evidence. `lost_ratio` is over the mean step of the longest rank (table `spans`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import PurePath
from queue import SimpleQueue
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from diagnose import processors, units
from diagnose.engine import collect, sandbox
from diagnose.engine.load import one_line
from diagnose.engine.overrides import typed
from diagnose.errors import RuleError
from diagnose.findings import SEVERITIES, Finding, Outcome, Rule

LOST_KINDS = ("simulated", "bound")
_CONTROL = (
    "lost_ns",
    "lost_kind",
    "lost_bytes",
    "severity",
    "confidence_ratio",
    "ranks",
    "hosts",
    "steps",
    "undecided",
    "fix",
)


MOST_RULES = 4
"""At a time: what a rule takes is mostly the planning of its query, which uses one core."""


class _Job(NamedTuple):
    """What every finding is measured and named by."""

    step_ns: int | None
    unknown_ranks: Mapping[int, str]


def evaluate(
    rules: Sequence[Rule],
    tables: Mapping[str, pa.Table],
    overrides: Mapping[str, Any] | None = None,
    time_limit_s: float = sandbox.TIME_LIMIT_S,
) -> list[Outcome]:
    """One outcome per rule, in order. `overrides`: {"rule.param": value}, values typed or as text.

    Raises UsageError for an override that names nothing; never for what a rule does.
    """
    changed = typed(rules, overrides or {})
    job = _Job(mean_step_ns(tables), _unknown_ranks(tables))
    sandboxes: SimpleQueue[duckdb.DuckDBPyConnection] = SimpleQueue()

    def outcome(rule: Rule) -> Outcome:
        connection = sandboxes.get()
        try:
            return _outcome(connection, rule, tables, changed.get(rule.id, {}), time_limit_s, job)
        finally:
            sandboxes.put(connection)

    at_a_time = max(1, min(MOST_RULES, processors.usable(), len(rules)))
    with ExitStack() as opened, ThreadPoolExecutor(at_a_time) as pool:
        for _ in range(at_a_time):
            sandboxes.put(opened.enter_context(closing(sandbox.connect())))
        return list(pool.map(outcome, rules))


def bind(rules: Iterable[Rule], tables: Mapping[str, pa.Table]) -> None:
    """Check columns, types, parameters and summaries of `rules` against (empty) tables; raises RuleError."""
    connection = sandbox.connect()
    try:
        for rule in rules:
            _bind(connection, rule, tables)
    finally:
        connection.close()


def _bind(connection: duckdb.DuckDBPyConnection, rule: Rule, tables: Mapping[str, pa.Table]) -> None:
    missing = [name for name in rule.needs if name not in tables]
    if missing:
        raise RuleError(f"{rule.id}: needs unknown tables: {', '.join(missing)}")
    for name in rule.needs_values:
        table, _, column = name.partition(".")
        if column not in tables[table].schema.names:
            raise RuleError(f"{rule.id}: needs_values names {name}, which does not exist")
    try:
        with sandbox.visible(connection, {name: tables[name] for name in rule.needs}):
            names, _ = sandbox.rows(connection, rule.sql, _arguments(rule, {}))
    except duckdb.Error as error:
        raise RuleError(f"{rule.id}: {one_line(error)}") from error
    if "lost_ns" not in names:
        raise RuleError(f"{rule.id}: the SELECT returns no lost_ns; return 0 where no time is lost")
    try:
        units.fill(rule.summary, dict.fromkeys(names))
    except (KeyError, ValueError) as error:
        raise RuleError(f"{rule.id}: the summary names {error}, which the SELECT does not return") from error


HANGS = ("stuck-collective",)
"""A job that stands still has no step that could be shorter: nothing else matters before."""


def ranked(outcomes: Iterable[Outcome]) -> list[Finding]:
    """All findings, dearest first; equal ones by severity, then rule. A hang, which has no price, stands before all.

    A general finding (a total, the price of a layout) stands right behind the dearest specific one that explains at
    least a third of it: the first line a user reads should name the cause.
    """
    known = list(outcomes)
    specific = [f for o in known if not o.general for f in o.findings]

    def order(general: bool, finding: Finding) -> tuple[object, ...]:
        causes = [f.lost_ns for f in specific if general and f.symptom == finding.symptom]
        explained = max((ns for ns in causes if 0 < finding.lost_ns <= 3 * ns), default=None)
        dear = finding.lost_ns if explained is None else explained
        hangs = finding.rule in HANGS and finding.severity == "critical"
        return (
            not hangs,
            -dear,
            explained is not None,
            -SEVERITIES.index(finding.severity),
            -finding.lost_bytes,
            finding.rule,
        )

    found = [(order(o.general, f), f) for o in known for f in o.findings]
    return [finding for _, finding in sorted(found, key=lambda pair: pair[0])]


def mean_step_ns(tables: Mapping[str, pa.Table]) -> int | None:
    """Mean analysed step (without steps: the recording) of the longest rank, or of a log of steps where that is longer.

    Where only pipeline timelines are known, it is the pipeline's step. None where none is known.
    """
    spans, trends = tables.get("spans"), tables.get("trends")
    known = [] if spans is None or spans.num_rows == 0 else [pc.max(spans["mean_ns"]).as_py()]
    if trends is not None and trends.num_rows:
        logged = trends.filter(trends["timed"].fill_null(False))["whole_mean"]
        known += [round(mean) for mean in logged.drop_null().to_pylist()]
    bubbles = tables.get("bubbles")
    if not known and bubbles is not None and bubbles.num_rows:
        analysed = bubbles.filter(pc.and_(bubbles["analysed"], bubbles["measured"]).fill_null(False))
        known += [mean and round(mean) for mean in [pc.mean(analysed["dur_ns"]).as_py()]]
    return max((ns for ns in known if ns is not None), default=None)


def _unknown_ranks(tables: Mapping[str, pa.Table]) -> dict[int, str]:
    """Text for the negative ids of ranks that no evidence gives."""
    files = tables.get("files")
    if files is None:
        return {}
    rows = zip(files["rank"].to_pylist(), files["path"].to_pylist(), strict=True)
    return {rank: f"unknown ({PurePath(path or '').name})" for rank, path in rows if rank is not None and rank < 0}


def _outcome(
    connection: duckdb.DuckDBPyConnection,
    rule: Rule,
    tables: Mapping[str, pa.Table],
    overrides: Mapping[str, Any],
    time_limit_s: float,
    job: _Job,
) -> Outcome:
    def ended(status: str, reason: str = "", findings: tuple[Finding, ...] = ()) -> Outcome:
        return Outcome(rule.id, rule.symptom, status, reason, findings, rule.decides, rule.general)

    try:
        reason = _missing(rule, tables)
        if reason:
            return ended("skipped", reason)
        with sandbox.visible(connection, {name: tables[name] for name in rule.needs}):
            names, values = sandbox.rows(connection, rule.sql, _arguments(rule, overrides), time_limit_s)
        offenders = [{n: _plain(v) for n, v in zip(names, row, strict=True)} for row in values]
        undecided = [str(row["undecided"]) for row in offenders if row.get("undecided") is not None]
        findings = [_finding(rule, row, job) for row in offenders if row.get("undecided") is None]
    except duckdb.InterruptException:
        return ended("failed", f"took more than {time_limit_s:g} s and was stopped")
    except duckdb.Error as error:
        return ended("failed", one_line(error))
    except RuleError as error:
        return ended("failed", str(error))
    if findings:
        ordered = sorted(findings, key=lambda f: (-f.lost_ns, -SEVERITIES.index(f.severity)))
        return ended("found", findings=tuple(ordered))
    if undecided:
        return ended("skipped", _undecided(rule, undecided))
    return ended("clear")


def _missing(rule: Rule, tables: Mapping[str, pa.Table]) -> str:
    """Why the rule cannot run on these tables, with what would help; empty where it can."""
    for name in rule.needs:
        if name not in tables:
            return f"no {name} in these inputs{collect.NEEDED}{collect.for_table(name, rule.collect)}"
    for name in rule.needs_values:
        table, _, column = name.partition(".")
        if column not in tables[table].schema.names:
            raise RuleError(f"needs_values names {name}, which does not exist")
        if tables[table].num_rows == 0:
            # Nothing of a kind is not the same as nothing recorded.
            timed = "spans" in tables and tables["spans"].num_rows > 0
            recorded = timed and table not in (*collect.OF_MEMORY, *collect.OF_SEVERAL_RANKS)
            needed = "" if recorded else f"{collect.NEEDED}{collect.for_table(table, rule.collect)}"
            return f"no {table} in these inputs{needed}"
        if tables[table][column].null_count == tables[table].num_rows:
            return f"no value of {name} in these inputs{collect.NEEDED}{collect.for_column(name, rule.collect)}"
    return ""


def _undecided(rule: Rule, reasons: Iterable[str]) -> str:
    text = "; ".join(dict.fromkeys(reasons))
    return f"{text}{collect.NEEDED}{rule.collect}" if rule.collect else text


def _arguments(rule: Rule, overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {name: overrides.get(name, param["default"]) for name, param in rule.params.items()}


def _finding(rule: Rule, row: Mapping[str, Any], job: _Job) -> Finding:
    step_ns = job.step_ns
    lost_ns = _whole(row, "lost_ns", None)
    if step_ns is not None and lost_ns > step_ns:
        raise RuleError(
            f"claims {units.duration(lost_ns)} of a step of {units.duration(step_ns)}: the rule counts time twice"
        )
    severity = row.get("severity") or rule.severity
    kind = row.get("lost_kind") or "bound"
    confidence = row.get("confidence_ratio", 1.0)
    if severity not in SEVERITIES or kind not in LOST_KINDS:
        raise RuleError(f"returned severity {severity!r} and lost_kind {kind!r}")
    if not isinstance(confidence, (int, float)) or not 0 <= confidence <= 1:
        raise RuleError(f"returned confidence_ratio {confidence!r}; expected 0 to 1")
    named = {**row, "rank": job.unknown_ranks.get(row["rank"], row["rank"])} if "rank" in row else row
    try:
        summary = units.fill(rule.summary, named)
    except KeyError as error:
        raise RuleError(f"the summary names {error}, which the SELECT does not return") from error
    return Finding(
        rule=rule.id,
        symptom=rule.symptom,
        severity=severity,
        title=rule.title,
        summary=summary,
        lost_ns=lost_ns,
        lost_kind=kind,
        lost_ratio=lost_ns / step_ns if step_ns else None,
        lost_bytes=_whole(row, "lost_bytes", 0),
        confidence_ratio=float(confidence),
        ranks=_several(row, "ranks"),
        hosts=_several(row, "hosts"),
        steps=_several(row, "steps"),
        evidence={name: value for name, value in row.items() if name not in _CONTROL},
        why=rule.why,
        fix=row.get("fix") or rule.fix,
    )


def _whole(row: Mapping[str, Any], name: str, default: int | None) -> int:
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise RuleError(f"returned {name} = {value!r}; expected a number of at least 0")
    return round(value)


def _several(row: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    value = row.get(name)
    if value is None:
        return ()
    return tuple(sorted(v for v in value if v is not None)) if isinstance(value, list) else (value,)


def _plain(value: Any) -> Any:
    """A DuckDB value as JSON knows it: whole numbers int, others float, unknown (also nan, inf) None."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return str(value)
