"""SQL of the user's own over all tables, in the same sandbox as the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.engine import sandbox
from diagnose.engine.load import one_line
from diagnose.errors import UsageError
from diagnose.sql import over


def query(tables: Mapping[str, pa.Table], sql: str) -> pa.Table:
    """The result of one SELECT (or SHOW, DESCRIBE, SUMMARIZE) over `tables`; Ctrl-C ends it.

    Raises UsageError where the SQL is no such statement or fails; the message is DuckDB's.
    """
    connection = sandbox.connect()
    try:
        with sandbox.visible(connection, tables):
            statements = duckdb.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError("query: expected one SELECT; tables can be read, not changed")
            return _whole_numbers(connection.sql(sql).to_arrow_table())
    except duckdb.Error as error:
        raise UsageError(f"query: {one_line(error)}") from error
    finally:
        connection.close()


def tables_named(sql: str) -> set[str] | None:
    """Names of the tables that a SELECT reads; None where that cannot be told (SHOW TABLES, or SQL that is wrong)."""
    with over() as connection:
        tree = json.loads(connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()[0][0])
    return None if tree.get("error") else set(_table_names(tree)) or None


def _table_names(node: Any) -> Iterator[str]:
    """Every table a parsed statement refers to, names of its own WITH clauses included."""
    if isinstance(node, list):
        for item in node:
            yield from _table_names(item)
    elif isinstance(node, dict):
        if node.get("type") == "BASE_TABLE":
            yield node["table_name"]
        for item in node.values():
            yield from _table_names(item)


def _whole_numbers(result: pa.Table) -> pa.Table:
    """Sums of int64 come as HUGEINT, which Arrow shows as decimals; those that fit become int64 again."""
    for index, column in enumerate(result.schema):
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            largest = pc.max(pc.abs(result[index])).as_py()
            if largest is None or largest < 2**63:
                result = result.set_column(index, column.name, result[index].cast(pa.int64()))
    return result
