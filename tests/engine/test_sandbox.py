"""What a rule cannot do: leave its tables, change anything, or run on."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from diagnose import units
from diagnose.engine import sandbox
from diagnose.engine.query import query
from diagnose.errors import RuleError, UsageError

TABLES = {"spans": pa.table({"dur_ns": [1, 2**62, 2**62]})}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT getenv('HOME')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "SET enable_external_access = true",
        "RESET memory_limit",
        "SELECT * FROM a_python_variable",
    ],
)
def test_the_world_outside_is_refused(sql: str, tmp_path: Path) -> None:
    a_python_variable = pa.table({"secret": [1]})
    connection = sandbox.connect()

    with sandbox.visible(connection, TABLES), pytest.raises(duckdb.Error):
        sandbox.rows(connection, sql.format(folder=tmp_path), {})

    assert a_python_variable.num_rows == 1
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_a_rule_words_itself_looks_as_everywhere_else() -> None:
    given = [0, 1, 999, 1_000, 1_234, 99_949, 999_499, 999_500, 2_000_000, 82_330_000, 319_860_000, 999_500_000, 10**11]
    told = sandbox.connect().execute("SELECT duration(unnest(?::BIGINT[]))", [given]).fetchall()
    assert [text for (text,) in told[1:]] == [units.duration(ns) for ns in given[1:]]
    assert sandbox.connect().execute("SELECT duration(NULL), duration(-1500::HUGEINT)").fetchone() == (None, "-1.50 us")


def test_only_the_given_tables_are_visible() -> None:
    connection = sandbox.connect()
    with sandbox.visible(connection, TABLES):
        assert sandbox.rows(connection, "SELECT COUNT(*) AS n FROM spans", {}) == (["n"], [(3,)])

    with pytest.raises(duckdb.CatalogException):
        sandbox.rows(connection, "SELECT * FROM spans", {})


def test_a_query_without_end_is_stopped_and_the_next_one_runs() -> None:
    connection = sandbox.connect()
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT MAX(n) FROM r"

    with pytest.raises(duckdb.InterruptException):
        sandbox.rows(connection, endless, {}, time_limit_s=0.2)

    assert sandbox.rows(connection, "SELECT 1 AS one", {}) == (["one"], [(1,)])


def test_data_instead_of_offenders_is_refused() -> None:
    connection = sandbox.connect()
    assert len(sandbox.rows(connection, f"SELECT * FROM range({sandbox.ROWS_LIMIT})", {})[1]) == sandbox.ROWS_LIMIT
    with pytest.raises(RuleError, match="group the offenders"):
        sandbox.rows(connection, f"SELECT * FROM range({sandbox.ROWS_LIMIT + 1})", {})


def test_a_sum_beyond_64_bits_stays_a_whole_number() -> None:
    connection = sandbox.connect()
    with sandbox.visible(connection, TABLES):
        _, ((total,),) = sandbox.rows(connection, "SELECT SUM(dur_ns) FROM spans", {})

    assert total == 2**63 + 1


def test_query_reads_tables_and_nothing_else() -> None:
    result = query(TABLES, "SELECT COUNT(*) AS rows, SUM(dur_ns - 1) // 2 AS half FROM spans")

    assert result.to_pylist() == [{"rows": 3, "half": 2**62 - 1}]
    assert pa.types.is_integer(result.schema.field("half").type)
    assert query(TABLES, "SHOW TABLES").to_pylist() == [{"name": "spans"}]
    for sql in ("DROP TABLE spans", "SELECT 1; SELECT 2", "", "COPY spans TO 'x.csv'"):
        with pytest.raises(UsageError, match="one SELECT"):
            query(TABLES, sql)
    with pytest.raises(UsageError, match="dur_us") as error:
        query(TABLES, "SELECT dur_us FROM spans")
    assert "\n" not in str(error.value)
