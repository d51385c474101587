"""Arrow columns as numpy arrays and back: nulls become a stated number, never a silent zero.

Dictionary columns are handled by their codes, so that text is looked at once per distinct value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_RANK = -(1 << 30)
"""Stands for the rank of rows that name none."""


def dictionary(column: pa.ChunkedArray) -> list[str]:
    """Distinct values of a LABEL column; the last place is for nulls."""
    return [*(column.unify_dictionaries().chunk(0).dictionary.to_pylist() if column.num_chunks else []), ""]


def codes(column: pa.ChunkedArray) -> Ints:
    """Index in `dictionary` of each value of a LABEL column; -1 for null."""
    if not column.num_chunks:
        return np.zeros(0, dtype=np.int64)
    chunks = [chunk.indices for chunk in column.unify_dictionaries().chunks]
    return integers(pa.chunked_array(chunks, pa.int32()), -1)


def flags(values: pa.Array | pa.ChunkedArray) -> Flags:
    """Boolean column; null is False."""
    return np.asarray(values.fill_null(False), dtype=bool)


def integers(values: pa.ChunkedArray | pa.Array | Ints, absent: int = 0) -> Ints:
    """Whole numbers as int64; null becomes `absent`."""
    if isinstance(values, np.ndarray):
        return values.astype(np.int64, copy=False)
    if values.null_count:
        values = values.fill_null(absent)
    return np.asarray(values, dtype=np.int64)


def encode(column: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Sorted distinct values, and the place of each value in them (-1: null)."""
    coded = pa.chunked_array(column.chunks, column.type).dictionary_encode().unify_dictionaries()
    if not coded.num_chunks:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    distinct = integers(coded.chunk(0).dictionary)
    order = np.argsort(distinct)
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(order)), -1
    return distinct[order], rank[codes(coded)]


def place(known: Ints, values: pa.ChunkedArray | Ints) -> Ints:
    """Place of each value in sorted `known`; -1 for nulls and strangers."""
    found = lookup(known, integers(values))
    if not isinstance(values, np.ndarray) and values.null_count:
        found[flags(values.is_null())] = -1
    return found


def lookup(known: Ints, values: Ints) -> Ints:
    """Place of each value in sorted `known`; -1 for strangers."""
    if not len(known):
        return np.full(len(values), -1, dtype=np.int64)
    nearest = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[nearest] == values, nearest, -1)


def label(texts: list[str], index: Ints) -> pa.Array:
    """LABEL column from texts and the index of each row's text; null where negative. Unused texts go."""
    used = np.flatnonzero(np.bincount(index + 1, minlength=1)[1:])
    coded = pa.array([texts[i] for i in used.tolist()], pa.string()).dictionary_encode()  # texts may repeat
    code = np.full(len(texts) + 1, -1, dtype=np.int32)
    code[used] = coded.indices.to_numpy(zero_copy_only=False)
    indices = code[index]
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), coded.dictionary)


def dense(index: Ints, size: int) -> tuple[Ints, Ints]:
    """Codes in use, ascending, and the place of each row's code among them; codes lie in 0..size - 1."""
    present = np.zeros(size, dtype=bool)
    present[index] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[index]


def take(values: NDArray[np.integer[Any]], index: Ints, absent: int) -> Ints:
    """values[index], `absent` where the index is negative."""
    result = np.full(len(index), absent, dtype=np.int64)
    known = index >= 0
    result[known] = values[index[known]]
    return result


def rows_of(ids: Ints, wanted: Ints) -> Ints:
    """Row in `ids` (distinct, any order) of each wanted id; -1 where it is absent."""
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    if (ids[1:] > ids[:-1]).all():
        return lookup(ids, wanted)
    order = np.argsort(ids, kind="stable")
    found = lookup(ids[order], wanted)
    return take(order, found, -1)
