"""JSON lines, CSV and TSV as cells: (line, name, text) in file order, block by block.

What the table is (delimiter, header, JSON or not) is told from its first lines. A value stays text here; a list, which
is no number whatever one does, is the text `[...]`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from diagnose.errors import InputError
from diagnose.ingest._compression import PieceReader
from diagnose.ingest._source import Source

_DELIMITERS = "\t,;"
_CHUNK_BYTES = 8 << 20
_LOOKED_AT_LINES = 64


class Block(NamedTuple):
    """Cells of consecutive lines, and how many lines were read and lost."""

    cells: pa.Table  # rowid_ int64 (order in the file), line int64, name, text
    lines_count: int
    unreadable_count: int


class Header(NamedTuple):
    """Lines in front of the header, its column names (made distinct), and the delimiter."""

    skipped_count: int
    names: list[str]
    delimiter: str


def first_lines(head: bytes) -> list[str]:
    """The first lines, without blank ones at the start."""
    return re.split(r"\r?\n", head.decode("utf-8", "replace").lstrip())[:_LOOKED_AT_LINES]


def first_object(lines: list[str]) -> dict[str, Any] | None:
    """The object on the first line of JSON lines; None where that is no whole JSON object."""
    if not lines or not lines[0].lstrip().startswith("{"):
        return None
    try:
        value = json.loads(lines[0])
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def header_of(lines: list[str]) -> Header:
    """Header of a delimited table. Comment lines in front are skipped, a header may itself begin with `#`."""
    for skipped, line in enumerate(lines):
        text = line.lstrip("\ufeff# ")
        delimiter = max(_DELIMITERS, key=text.count)
        if text.count(delimiter) == 0 and line.startswith("#"):
            continue
        names = [name.strip() for name in fields(text, delimiter)]
        seen: dict[str, int] = {}
        for at, name in enumerate(names):
            seen[name] = seen.get(name, 0) + 1
            names[at] = f"{name}_{seen[name]}" if seen[name] > 1 else name
        return Header(skipped, names, delimiter)
    return Header(0, [], ",")


def fields(line: str, delimiter: str) -> list[str]:
    """Fields of one line; none where it is no delimited text."""
    try:
        return next(csv.reader([line.replace("\r", " ")], delimiter=delimiter), [])
    except csv.Error:
        return []


def is_number(text: str) -> bool:
    """Whether the text is a decimal number, nan or inf."""
    return re.fullmatch(r"\s*[-+]?(\d+\.?\d*(e[-+]?\d+)?|\.\d+|nan|inf)\s*", text, re.IGNORECASE) is not None


def json_blocks(source: Source) -> Iterator[Block]:
    """Cells of JSON lines; nested keys are joined by dots. A line that is no JSON object is unreadable."""
    import duckdb

    database, rest, start = duckdb.connect(), b"", 0
    for piece in _and_end(source.chunks(_CHUNK_BYTES)):
        whole, _, rest = (rest + piece).rpartition(b"\n") if piece else (rest, b"", b"")
        text = pa.array(whole.decode("utf-8", "replace").split("\n"), pa.large_string())
        line = pa.array(np.arange(start, start + len(text)))
        start += len(text)
        database.register("lines", pa.table({"line": line, "text": text}))
        ((objects, others),) = database.execute(_JSON_COUNTS).fetchall()
        yield Block(database.sql(_JSON_CELLS).to_arrow_table(), objects, others)


_JSON_COUNTS = r"""
SELECT count(*) FILTER (kind = 'OBJECT'), count(*) FILTER (kind IS DISTINCT FROM 'OBJECT' AND NOT blank)
FROM (SELECT TRY(json_type(text)) AS kind, regexp_full_match(text, '\s*') AS blank FROM lines)"""
_JSON_CELLS = """
SELECT row_number() OVER (ORDER BY line, id) AS rowid_, line, replace(substr(fullkey, 3), '"', '') AS name,
    CASE type WHEN 'VARCHAR' THEN atom->>'$' WHEN 'ARRAY' THEN '[...]' ELSE CAST(atom AS VARCHAR) END AS text
FROM (SELECT line, text FROM lines WHERE TRY(json_type(text)) = 'OBJECT') AS objects, json_tree(objects.text)
WHERE type NOT IN ('OBJECT', 'NULL') AND fullkey NOT LIKE '%[%'"""


def _and_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, then an empty one that flushes a last line without a newline."""
    yield from pieces
    yield b""


def csv_blocks(source: Source, header: Header) -> Iterator[Block]:
    """Cells of a delimited table; a row with another number of fields is unreadable. InputError if it is no table."""
    lost = [0]

    def skip(row: Any) -> str:
        lost[0] += 1
        return "skip"

    reader = PieceReader(_from_first_line(source.chunks(_CHUNK_BYTES)))
    try:
        blocks = arrow_csv.open_csv(
            pa.PythonFile(reader, mode="r"),
            read_options=arrow_csv.ReadOptions(
                skip_rows=header.skipped_count + 1, column_names=header.names, use_threads=False
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=header.delimiter, invalid_row_handler=skip),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(header.names, pa.binary())),
        )
        start = 0
        for block in blocks:
            yield Block(_melted(block, header.names, start), block.num_rows, lost[0])
            start, lost[0] = start + block.num_rows, 0
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise InputError(source.label, f"a table that does not parse ({reason})", "CSV or TSV", "check it") from error


def _from_first_line(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces without blank lines at the start, as in `first_lines`."""
    text = b""
    for piece in pieces:
        text = (text + piece).lstrip()
        if b"\n" in text:
            break
    yield text
    yield from pieces


def _melted(block: pa.RecordBatch, names: list[str], start: int) -> pa.Table:
    count, width = block.num_rows, len(names)
    line = np.arange(start, start + count)
    parts = [
        pa.table({
            "rowid_": pa.array(line * width + at), "line": pa.array(line), "name": pa.repeat(pa.scalar(name), count),
            "text": _as_text(block.column(at)),
        })
        for at, name in enumerate(names)
    ]  # fmt: skip
    return pa.concat_tables(parts)


def _as_text(column: pa.Array) -> pa.Array:
    """Bytes as text; a column that holds other than UTF-8 is decoded value by value."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([v if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()], pa.string())
