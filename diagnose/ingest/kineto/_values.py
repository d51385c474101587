"""Single columns out of DuckDB's structs: exact times, ids that may be text, nulls that cost no memory."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._parse import ROW, Parser, Slices

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NUMBER = re.compile(r"(?:stream\s*)?(-?\d{1,18})(?:\.0*)?\s*")
_FIRST_TEXT_ID = -1000  # -1 is the profiler's own process


class Times(NamedTuple):
    """Nanoseconds of a decimal column in microseconds; `known` where there was a number, `large` where the
    number cannot be microseconds (it would be a year after 2262) and was taken for nanoseconds."""

    ns: Int64s
    known: Mask
    large: Mask


def nanoseconds(column: pa.Array) -> Times:
    """Exact: a decimal with three digits is a whole number of nanoseconds."""
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    known = valid(column)
    ns = np.where(known, words[:, 0], 0)
    large = known & (words[:, 1] != words[:, 0] >> 63)
    if large.any():
        whole = pc.cast(
            pc.cast(column.filter(pa.array(large)), pa.decimal128(25, 0), safe=False), pa.int64(), safe=False
        )
        ns[large] = whole.to_numpy(zero_copy_only=False)
    return Times(ns, known, large)


def valid(column: pa.Array) -> Mask:
    """Where a column is not null."""
    return np.ones(len(column), np.bool_) if not column.null_count else column.is_valid().to_numpy(zero_copy_only=False)


def whole(column: pa.Array, null: int = 0) -> Int64s:
    """An integer column as numpy, `null` where it is null."""
    filled = column.fill_null(null) if column.null_count else column
    values: Int64s = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def integers(values: Int64s, known: Mask) -> pa.Array:
    """An integer column that is null where not `known`; an all-null one shares its memory with others."""
    if not known.any():
        return nulls(len(values), pa.int64())
    return pa.array(values) if known.all() else pa.array(values, mask=~known)


_NULLS: dict[pa.DataType, pa.Array] = {}


def nulls(length: int, kind: pa.DataType) -> pa.Array:
    """A null column: a slice of one array that all such columns share."""
    shared = _NULLS.get(kind)
    if shared is None or len(shared) < length:
        shared = _NULLS[kind] = pa.nulls(max(length, 1 << 16), kind)
    return shared.slice(0, length)


def thin(column: pa.Array) -> pa.Array:
    """The column, or shared nulls where it holds nothing else."""
    return nulls(len(column), column.type) if column.null_count == len(column) else column


def has_non_finite(found: pa.StructArray) -> bool:
    """Whether a floating-point argument is inf or nan."""
    arguments = pc.struct_field(found, "args")
    floats = [f.name for f in arguments.type if pa.types.is_floating(f.type)]
    return any(pc.any(pc.invert(pc.is_finite(pc.struct_field(arguments, f)))).as_py() for f in floats)


class TextIds:
    """Distinct negative numbers for process and thread ids that are text."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of one text."""
        return self._ids.setdefault(text, _FIRST_TEXT_ID - len(self._ids))


class Rows:
    """`pid` and `tid` of events: numbers where they are numbers, `stream 7` is 7, other text by `TextIds`."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._texts = {"pid": TextIds(), "tid": TextIds()}

    def read(self, found: pa.StructArray, slices: Slices) -> dict[str, tuple[Int64s, Mask, Mask]]:
        """Per key: the numbers, where there is one, and where it stands for a text."""
        columns = {key: pc.struct_field(found, key) for key in ("pid", "tid")}
        result = {}
        absent = ~valid(columns["pid"]) | ~valid(columns["tid"])
        rows = np.flatnonzero(absent)
        again = self._parser.parse(slices.take(rows), ROW) if len(rows) else None
        for key, column in columns.items():
            numbers, known = whole(column), valid(column)
            named = np.zeros(len(numbers), np.bool_)
            if again is not None:
                self._read_texts(key, pc.struct_field(again, key), rows, (numbers, known, named))
            result[key] = numbers, known, named
        return result

    def _read_texts(self, key: str, texts: pa.Array, rows: Int64s, into: tuple[Int64s, Mask, Mask]) -> None:
        numbers, known, named = into
        found = texts.dictionary_encode()
        words = found.dictionary.to_pylist()
        plain = [_NUMBER.fullmatch(word) for word in words]
        values = [int(p[1]) if p else self._texts[key].number(w) for p, w in zip(plain, words, strict=True)]
        codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        there = codes >= 0
        target = rows[there]
        lookup = np.array(values or [0], np.int64)
        numbers[target] = lookup[codes[there]]
        known[target] = True
        named[target] = np.array([p is None for p in plain] or [False])[codes[there]]
