"""`diagnose query`: SQL over the tables."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli._options import Quiet, Ranks, Steps
from diagnose.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


class Format(StrEnum):
    """How the result is written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def command(
    path: Annotated[str, typer.Argument(help="A trace, folder, glob or archive.", show_default=False)],
    sql: Annotated[
        str, typer.Argument(help='DuckDB SQL, such as "SELECT part, sum(dur_ns) FROM step_time GROUP BY part".')
    ] = "SHOW TABLES",
    format_: Annotated[Format, typer.Option("--format", help="How to write the result.")] = Format.table,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file.", show_default="stdout")
    ] = None,
    steps: Steps = None,
    ranks: Ranks = None,
    quiet: Quiet = False,
) -> None:
    """Run SQL over all tables of a diagnosis (without SQL: list them)."""
    from diagnose import engine, pipeline, selection
    from diagnose.cli import _progress

    with _progress.reading(quiet) as progress:
        read = pipeline.read([path], None, progress)
        tables = pipeline.derive(read, selection.parse(ranks, steps), engine.tables_named(sql))
    result = engine.query(tables, sql)
    if format_ is Format.table and output is None:
        _print(result)
    else:
        _write(_encode(result, format_), output, format_)


def _encode(result: pa.Table, format_: Format) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    if format_ is Format.parquet:
        import pyarrow.parquet as pq

        pq.write_table(result, sink)
        return bytes(sink.getvalue())
    if format_ is Format.json:
        return json.dumps(result.to_pylist(), indent=1, default=str).encode() + b"\n"
    import pyarrow.csv as pc

    pc.write_csv(_flat(result), sink, pc.WriteOptions(quoting_style="needed"))
    return bytes(sink.getvalue())


def _flat(result: pa.Table) -> pa.Table:
    """The table with lists as JSON text: CSV has no lists."""
    import pyarrow as pa

    columns = [
        pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in result.itercolumns()
    ]
    return pa.table(columns, names=result.column_names)


def _write(data: bytes, output: Path | None, format_: Format) -> None:
    if output is not None:
        try:
            output.write_bytes(data)
        except OSError as error:
            raise UsageError(f"{output}: cannot be written ({error.strerror})") from error
        return
    if format_ is Format.parquet and sys.stdout.isatty():
        raise UsageError("--format parquet is binary: give a file with -o, or pipe it")
    sys.stdout.buffer.write(data)


def _print(result: pa.Table) -> None:
    from rich.console import Console
    from rich.table import Table

    from diagnose.units import show

    shown = 1000
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for name, kind in zip(result.schema.names, result.schema.types, strict=True):
        grid.add_column(name, justify="right" if str(kind).startswith(("int", "double", "uint")) else "left")
    for row in result.slice(0, shown).to_pylist():
        grid.add_row(
            *("" if v is None else str(v) if name.endswith("ts_ns") else show(name, v) for name, v in row.items())
        )
    console = Console(highlight=False)
    console.print(grid)
    if result.num_rows > shown:
        console.print(f"... {result.num_rows - shown:,} more rows (use --format csv or parquet for all)")
