"""SQL over Arrow tables: DuckDB with one database per process, since opening one costs more than most questions.

For the project's own queries. Rules and the user's queries run in a sandbox of their own (`engine.sandbox`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb
import pyarrow as pa


@contextmanager
def over(**tables: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that sees each table under its name; what is made in it goes with it."""
    connection = _database(os.getpid()).cursor()
    try:
        for name, table in tables.items():
            connection.register(name, table)
        yield connection
    finally:
        connection.close()


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """`process` keeps a forked child from using its parent's database."""
    return duckdb.connect()
