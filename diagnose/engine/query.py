"""SQL of the user's own over all tables, in the same sandbox as the rules."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.engine import sandbox
from diagnose.engine.load import one_line
from diagnose.errors import UsageError


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


def _whole_numbers(result: pa.Table) -> pa.Table:
    """Sums of int64 come as HUGEINT, which Arrow shows as decimals; those that fit become int64 again."""
    for index, column in enumerate(result.schema):
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            largest = pc.max(pc.abs(result[index])).as_py()
            if largest is None or largest < 2**63:
                result = result.set_column(index, column.name, result[index].cast(pa.int64()))
    return result
