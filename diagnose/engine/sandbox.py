"""A DuckDB connection that can read the given tables and nothing else.

Refused: files, COPY, ATTACH, INSTALL, LOAD, SET, and Python variables as tables. A query past its time or memory
limit is stopped. It does not limit what a query says about the tables it was given.
Method: external access off, replacement scans off, configuration locked (each refusal is held by a test).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from diagnose.errors import RuleError

MEMORY_LIMIT = "2GB"
TIME_LIMIT_S = 60.0
ROWS_LIMIT = 500
"""A rule returns offenders, not data: more rows than this is a mistake in the rule."""

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",  # nothing is spilled to disk
    "lock_configuration": "true",
}
_MACROS = """
CREATE MACRO three_digits(v) AS
  CASE WHEN abs(v) < 10 THEN format('{:.2f}', v)
       WHEN abs(v) < 100 THEN format('{:.1f}', v)
       ELSE format('{:.0f}', v) END;
CREATE MACRO duration(ns) AS
  CASE WHEN ns = 0 THEN '0 ns'
       WHEN abs(ns) < 999.5 THEN format('{:.0f} ns', ns::DOUBLE)
       WHEN abs(ns) < 999.5e3 THEN three_digits(ns / 1e3) || ' us'
       WHEN abs(ns) < 999.5e6 THEN three_digits(ns / 1e6) || ' ms'
       ELSE three_digits(ns / 1e9) || ' s' END;
"""
"""`duration(ns)`: a time as everywhere else in the output, for the words that a rule puts together itself."""


def connect() -> duckdb.DuckDBPyConnection:
    """An empty in-memory database without access to anything outside it."""
    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute(_MACROS)
    return connection


@contextmanager
def visible(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> Iterator[None]:
    """Within the block `connection` sees exactly `tables`, by name, without copying them."""
    registered: list[str] = []
    try:
        for name, table in tables.items():
            connection.register(name, table)
            registered.append(name)
        yield
    finally:
        for name in registered:
            connection.unregister(name)


def rows(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Mapping[str, Any],
    time_limit_s: float = TIME_LIMIT_S,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one query. Raises duckdb.Error (past the time limit too), RuleError on too many rows.

    Rows are fetched as Python values: a SUM of BIGINT is a HUGEINT, which is an int here and a Decimal through Arrow.
    """
    timer = threading.Timer(time_limit_s, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        result = connection.execute(sql, dict(parameters))
        found = result.fetchmany(ROWS_LIMIT + 1)
        names = [column[0] for column in result.description]
    finally:
        # Joined, so that a late interrupt cannot hit the next rule.
        timer.cancel()
        timer.join()
        # DuckDB streams: rows not fetched would keep the tables in use.
        connection.abort()
    if len(found) > ROWS_LIMIT:
        raise RuleError(f"returned more than {ROWS_LIMIT} rows; group the offenders")
    return names, found
