"""From rows to outcomes: the four endings, the findings, and what a rule may not claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from diagnose import engine
from diagnose.errors import RuleError, UsageError
from diagnose.findings import Outcome, Rule
from diagnose.schema import Tables
from tests.rules.build import MS, spans, step, tables

RULE = Rule(
    id="test-rule",
    symptom="low_speedup",
    title="A test",
    severity="warning",
    needs=("spans",),
    needs_values=(),
    decides=True,
    summary="{lost_ns} lost",
    why="why",
    fix="fix",
    quiet_when="never",
    sources=("https://example.org",),
    params={
        "min_dur_ns": {"default": 0, "doc": "a guess, to be fitted"},
        "scale_ratio": {"default": 0.5, "doc": "a guess"},
    },
    sql="SELECT compute_ns AS lost_ns, rank FROM spans WHERE dur_ns > $min_dur_ns AND $scale_ratio < 2",
)
TEN_MS = spans(step(1, compute_ns=8 * MS, comm_ns=2 * MS), step(2, compute_ns=4 * MS, comm_ns=6 * MS))


def with_sql(sql: str, **changes: Any) -> Rule:
    return replace(RULE, sql=sql, params={}, **changes)


def one(rule: Rule, given: Tables | None = None, **overrides: Any) -> Outcome:
    (outcome,) = engine.evaluate([rule], tables(spans=TEN_MS) if given is None else given, overrides, time_limit_s=5)
    return outcome


def test_found_with_findings_dearest_first() -> None:
    outcome = one(RULE)

    assert (outcome.status, outcome.decides) == ("found", True)
    assert [f.lost_ns for f in outcome.findings] == [8 * MS, 4 * MS]
    finding = outcome.findings[0]
    assert (finding.lost_ratio, finding.lost_kind, finding.confidence_ratio) == (0.8, "bound", 1.0)
    assert (finding.summary, finding.evidence) == ("8.00 ms lost", {"rank": 0})


def test_clear_and_skipped_are_not_the_same() -> None:
    assert one(RULE, **{"test-rule.min_dur_ns": 10**12}).status == "clear"
    missing = one(replace(RULE, needs=("dispatch",)))
    assert missing.status == "skipped"
    assert "router statistics" in missing.reason
    unknown = one(replace(RULE, needs=("spans", "gemms"), needs_values=("gemms.efficiency_ratio",)))
    assert (unknown.status, unknown.reason) == ("skipped", "no gemms in these inputs")


def test_a_column_of_nulls_skips_with_what_to_record() -> None:
    given = tables(spans=TEN_MS, gemms=[{"rank": 0, "dur_ns": 1}])
    outcome = one(replace(RULE, needs=("spans", "gemms"), needs_values=("gemms.efficiency_ratio",)), given)

    assert outcome.status == "skipped"
    assert "record_shapes=True" in outcome.reason


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT dur_us AS lost_ns FROM spans", "dur_us"),
        ("SELECT 1 AS lost_ns FROM kernels", "kernels"),
        ("SELECT 10 * dur_ns AS lost_ns FROM spans", "counts time twice"),
        ("SELECT -1 AS lost_ns", "at least 0"),
        ("SELECT NULL AS lost_ns", "at least 0"),
        ("SELECT 'NaN'::DOUBLE AS lost_ns", "at least 0"),
        ("SELECT 1 AS other", "lost_ns"),
        ("SELECT 1 AS lost_ns, 'bad' AS severity", "bad"),
        ("SELECT 1 AS lost_ns, 'sure' AS lost_kind", "sure"),
        ("SELECT 1 AS lost_ns, 2.0 AS confidence_ratio", "0 to 1"),
        ("SELECT 1 AS lost_ns FROM range(501)", "group the offenders"),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT MAX(n) AS lost_ns FROM r", "stopped"),
    ],
)
def test_a_rule_that_is_wrong_fails_alone_on_one_line(sql: str, words: str) -> None:
    bad = with_sql(sql)
    failed, good = engine.evaluate([bad, RULE], tables(spans=TEN_MS), time_limit_s=0.5)

    assert failed.status == "failed"
    assert words in failed.reason
    assert "\n" not in failed.reason
    assert good.status == "found"


def test_the_whole_step_may_be_lost_but_no_nanosecond_more() -> None:
    assert one(with_sql("SELECT mean_ns AS lost_ns FROM spans LIMIT 1")).findings[0].lost_ratio == 1.0
    assert one(with_sql("SELECT mean_ns + 1 AS lost_ns FROM spans LIMIT 1")).status == "failed"


def test_a_summary_of_unknown_columns_fails() -> None:
    assert "no_such" in one(with_sql("SELECT 1 AS lost_ns", summary="{no_such}")).reason


def test_columns_with_a_meaning() -> None:
    sql = """
      SELECT
        1 AS lost_ns, 7 AS lost_bytes, 'info' AS severity, 'simulated' AS lost_kind, 0.25 AS confidence_ratio,
        [2, 0, NULL] AS ranks, ['b', 'a'] AS hosts, 5::BIGINT AS steps, SUM(dur_ns) AS total_ns, 'inf'::DOUBLE AS x
      FROM spans
    """
    finding = one(with_sql(sql)).findings[0]

    assert (finding.lost_bytes, finding.severity, finding.lost_kind, finding.confidence_ratio) == (
        7,
        "info",
        "simulated",
        0.25,
    )
    assert (finding.ranks, finding.hosts, finding.steps) == ((0, 2), ("a", "b"), (5,))
    assert finding.evidence == {"total_ns": 20 * MS, "x": None}
    assert isinstance(finding.evidence["total_ns"], int)


def test_undecided_rows_are_reasons_not_findings() -> None:
    sql = "SELECT 1 AS lost_ns, IF(step = 1, 'clocks differ', NULL) AS undecided FROM spans"
    assert len(one(with_sql(sql)).findings) == 1
    only = one(with_sql(sql + " WHERE step = 1", collect="a better clock"))
    assert (only.status, only.reason) == ("skipped", "clocks differ; needed: a better clock")


def test_the_longest_rank_is_the_step() -> None:
    given = tables(spans=spans(step(compute_ns=10 * MS), step(rank=1, compute_ns=40 * MS)))
    assert one(with_sql("SELECT 10000000 AS lost_ns"), given).findings[0].lost_ratio == 0.25


def test_a_rank_without_evidence_is_called_by_its_file() -> None:
    given = tables(
        spans=spans(step(rank=-1, compute_ns=MS)), files=[{"file": 0, "rank": -1, "path": "run/worker.json"}]
    )
    finding = one(with_sql("SELECT 1 AS lost_ns, rank FROM spans", summary="rank {rank}"), given).findings[0]

    assert (finding.summary, finding.evidence) == ("rank unknown (worker.json)", {"rank": -1})


def test_overrides_are_typed_by_the_default() -> None:
    assert one(RULE, **{"test-rule.min_dur_ns": "1e7"}).status == "clear"
    assert one(RULE, **{"test-rule.scale_ratio": "2"}).status == "clear"
    assert one(RULE, **{"test-rule.scale_ratio": 1}).status == "found"


@pytest.mark.parametrize(
    ("target", "value", "words"),
    [
        ("tset-rule.min_dur_ns", 1, "did you mean 'test-rule'"),
        ("test-rule.min_dur", 1, "did you mean 'min_dur_ns'"),
        ("test-rule.zzz", 1, "it has min_dur_ns, scale_ratio"),
        ("test-rule", 1, "write rule.param=value"),
        ("test-rule.min_dur_ns", "0.5", "a whole number"),
        ("test-rule.min_dur_ns", "ten", "a number"),
        ("test-rule.scale_ratio", "nan", "a finite number"),
    ],
)
def test_an_override_of_nothing_is_a_usage_error(target: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        one(RULE, **{target: value})

    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sql": "SELECT dur_us AS lost_ns FROM spans", "params": {}}, "dur_us"),
        ({"sql": "SELECT 1 AS other", "params": {}}, "returns no lost_ns"),
        ({"sql": "SELECT 1 AS lost_ns", "params": {}, "summary": "{gone}"}, "gone"),
        ({"needs": ("no_table",)}, "no_table"),
        ({"needs_values": ("spans.no_column",)}, "no_column"),
    ],
)
def test_binding_finds_mistakes_without_data(change: dict[str, Any], words: str) -> None:
    engine.bind([RULE], tables())
    with pytest.raises(RuleError) as error:
        engine.bind([replace(RULE, **change)], tables())

    assert words in str(error.value)


def test_ranked_over_rules() -> None:
    outcomes = [
        one(with_sql(f"SELECT {n} AS lost_ns, '{s}' AS severity"))
        for n, s in ((5, "info"), (9, "info"), (5, "critical"))
    ]
    assert [(f.lost_ns, f.severity) for f in engine.ranked(outcomes)] == [(9, "info"), (5, "critical"), (5, "info")]


def test_nothing_is_copied_or_left_behind() -> None:
    given = {"spans": tables(spans=TEN_MS)["spans"], "kernels": pa.table({"x": [1]})}
    engine.evaluate([RULE, RULE], given)
    assert set(given) == {"spans", "kernels"}
