"""JSON lines, CSV and TSV as columns, block by block.

What the table is (delimiter, header, JSON or not) is told from its first lines. A column is numbers or text; a null is
an absent value, a list (no number whatever one does) is the text `[...]`, and nested JSON keys are joined by dots.
Method: Arrow's own readers where every line of a block is alike and holds numbers and text only, which is nearly
always; else DuckDB, which takes JSON apart whatever its shape. Both give the same columns.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from diagnose import sql
from diagnose.errors import InputError
from diagnose.ingest._compression import PieceReader
from diagnose.ingest._source import Source

_DELIMITERS = "\t,;"
_CHUNK_BYTES = 8 << 20
_CSV_BLOCK_BYTES = 8 << 20
_LOOKED_AT_LINES = 64
NUMBER = r"^[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)$"
"""A decimal number, nan or inf, whatever its case."""


class Block(NamedTuple):
    """Columns of consecutive lines, and how many lines were read and lost."""

    line: npt.NDArray[np.int64]
    """Line of each row, from 0; a line without any value may be absent."""
    columns: dict[str, pa.Array]
    """By name in file order: float64, or text."""
    lines_count: int
    unreadable_count: int


class Header(NamedTuple):
    """Lines in front of the header, its column names (made distinct), and the delimiter."""

    skipped_count: int
    names: list[str]
    delimiter: str


def first_lines(head: bytes) -> list[str]:
    """The first lines, without blank ones at the start."""
    text = head.decode("utf-8", "replace").lstrip()
    return re.split(r"\r?\n", text, maxsplit=_LOOKED_AT_LINES)[:_LOOKED_AT_LINES]


def first_object(lines: list[str]) -> dict[str, Any] | None:
    """The object on the first line of JSON lines; None where that is no whole JSON object."""
    if not lines or not lines[0].lstrip().startswith("{"):
        return None
    try:
        value = json.loads(lines[0])
    except (ValueError, RecursionError):
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
    return re.match(NUMBER, text.strip(), re.IGNORECASE) is not None


def json_blocks(source: Source) -> Iterator[Block]:
    """Columns of JSON lines. A line that is no JSON object is unreadable."""
    rest, start = b"", 0
    for piece in _and_end(source.chunks(_CHUNK_BYTES)):
        whole, newline, rest = (rest + piece).rpartition(b"\n") if piece else (rest, rest, b"")
        if not newline:
            continue
        count = whole.count(b"\n") + 1
        columns = _alike(whole, count)
        yield _any_json(whole, start) if columns is None else Block(np.arange(start, start + count), columns, count, 0)
        start += count


def _alike(whole: bytes, count: int) -> dict[str, pa.Array] | None:
    """Columns of lines that are all flat objects with keys of the first one, holding numbers and text; else None."""
    import pyarrow.json as arrow_json

    first = first_object([whole.split(b"\n", 1)[0].decode("utf-8", "replace")])
    plain = (int, float, str)
    if not first or not whole.isascii() or any(type(v) not in plain or "." in k for k, v in first.items()):
        return None
    fields = [(key, pa.string() if isinstance(value, str) else pa.float64()) for key, value in first.items()]
    try:
        found = arrow_json.read_json(
            pa.BufferReader(whole),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(whole) + 1),
            parse_options=arrow_json.ParseOptions(pa.schema(fields), unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    if found.num_rows != count or found.column_names != list(first):
        return None
    return {name: found[name].combine_chunks() for name in found.column_names}


def _any_json(whole: bytes, start: int) -> Block:
    """JSON lines of any shape, taken apart by DuckDB."""
    text = pa.array(whole.decode("utf-8", "replace").split("\n"), pa.large_string())
    with sql.over(lines=pa.table({"line": pa.array(np.arange(len(text))), "text": text})) as database:
        ((objects, others),) = database.execute(_JSON_COUNTS).fetchall()
        cells = database.sql(_JSON_CELLS).to_arrow_table()
    names = cells["name"].combine_chunks().dictionary_encode()
    line, values = np.asarray(cells["line"], np.int64), cells["text"].combine_chunks()
    code = np.asarray(names.indices, np.int64)
    columns = {}
    for number, name in enumerate(names.dictionary.to_pylist()):
        mine = np.flatnonzero(code == number)
        place = np.full(len(text), -1)
        place[line[mine]] = mine  # of a key given twice the last value
        columns[name] = values.take(pa.array(place, mask=place < 0))
    return Block(np.arange(start, start + len(text)), columns, objects, others)


_JSON_COUNTS = r"""
SELECT count(*) FILTER (kind = 'OBJECT'), count(*) FILTER (kind IS DISTINCT FROM 'OBJECT' AND NOT blank)
FROM (SELECT TRY(json_type(text)) AS kind, regexp_full_match(text, '\s*') AS blank FROM lines)"""
_JSON_CELLS = """
SELECT line, replace(substr(fullkey, 3), '"', '') AS name,
    CASE type WHEN 'VARCHAR' THEN atom->>'$' WHEN 'ARRAY' THEN '[...]' ELSE CAST(atom AS VARCHAR) END AS text
FROM (SELECT line, text FROM lines WHERE TRY(json_type(text)) = 'OBJECT') AS objects, json_tree(objects.text)
WHERE type NOT IN ('OBJECT', 'NULL') AND fullkey NOT LIKE '%[%' ORDER BY line, id"""


def _and_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, then an empty one that flushes a last line without a newline."""
    yield from pieces
    yield b""


def csv_blocks(source: Source, header: Header) -> Iterator[Block]:
    """Columns of a delimited table; a row with another number of fields is unreadable. InputError if it is no table."""
    lost = [0]

    def skip(row: Any) -> str:
        lost[0] += 1
        return "skip"

    reader = PieceReader(_from_first_line(source.chunks(_CHUNK_BYTES)))
    try:
        blocks = arrow_csv.open_csv(
            pa.PythonFile(reader, mode="r"),
            read_options=arrow_csv.ReadOptions(
                skip_rows=header.skipped_count + 1,
                column_names=header.names,
                use_threads=False,
                block_size=_CSV_BLOCK_BYTES,
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=header.delimiter, invalid_row_handler=skip),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(header.names, pa.binary())),
        )
        start = 0
        for block in blocks:
            columns = {name: _as_text(block.column(at)) for at, name in enumerate(header.names)}
            yield Block(np.arange(start, start + block.num_rows), columns, block.num_rows, lost[0])
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


def _as_text(column: pa.Array) -> pa.Array:
    """Bytes as text; a column that holds other than UTF-8 is decoded value by value."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([v if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()], pa.string())


def numbers(column: pa.Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Values of a column, where there is one, and where something stands that is no number."""
    if not pa.types.is_floating(column.type):
        try:
            column = pc.if_else(pc.equal(column, ""), None, column).cast(pa.float64())
        except pa.ArrowInvalid:
            return _mixed(column)
    there = np.asarray(column.is_valid())
    return np.asarray(column.fill_null(np.nan)), there, np.zeros(len(column), bool)


def _mixed(column: pa.Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of a text column of which not all is numbers: spaces around them, empty cells, words."""
    text = pc.utf8_trim_whitespace(column.fill_null(""))
    there = np.asarray(pc.match_substring_regex(text, NUMBER, ignore_case=True))
    value = np.full(len(text), np.nan)
    value[there] = np.asarray(text.filter(pa.array(there)).cast(pa.float64()))
    return value, there, ~there & np.asarray(pc.not_equal(text, ""))
