"""Collective calls of an NCCL log, read by the places of their words: millions of lines that look alike.

`AllReduce: opCount 1f sendbuff ... count 4096 datatype 7 op 0 root 0 comm 0x55.. [nranks=64] ...`: which words a line
has differs between releases, not within one. Lines of one number of words are read together: those count that have
the same names at the places where the first has them; others are left to the pattern (`_nccl_lines.CALL`).
Method: places of spaces in the bytes of the column (numpy); a word is 8 bytes or a few times 8, of which each
distinct one is looked at once. No text is copied.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_NAMES = ("opCount", "count", "datatype", "comm")
"""Words in front of the values that are read. The call's name is the first word, the ranks stand behind the comm."""
_VALUES = {
    "seq": re.compile(r"^([0-9a-f]{1,15})$"),
    "elements": re.compile(r"^(\d{1,18})$"),
    "type": re.compile(r"^(\d{1,4})$"),
    "size": re.compile(r"^\[nranks=(\d{1,9})\]$"),
    "op": re.compile(r"^(\w+):$"),
    "comm": re.compile(r"^(\S+)$"),
}
_MOST_WIDE = 8  # times 8 bytes


class Calls(NamedTuple):
    """Per line. `known` is False where it does not look like the others; the rest means nothing there."""

    known: NDArray[np.bool_]
    op: pa.DictionaryArray
    comm: pa.DictionaryArray
    seq: Ints
    elements: Ints
    type: Ints
    size: Ints


class _Words:
    """Words of lines that have equally many."""

    def __init__(self, raw: Bytes, edge: tuple[Ints, Ints], spaces: Ints) -> None:
        self.raw = raw  # with 64 bytes behind the last word
        self.eights = np.ndarray((len(raw) - 7,), "<u8", raw, 0, (1,))  # the 8 bytes from every place on
        self.begin, self.end = edge
        self.spaces = spaces  # (lines, words - 1)
        self.count = spaces.shape[1] + 1

    def at(self, place: int) -> tuple[Ints, list[str]]:
        """(which distinct word each line has at a place, the distinct words); none longer than 64 bytes."""
        start = self.begin if place == 0 else self.spaces[:, place - 1] + 1
        length = (self.end if place == self.count - 1 else self.spaces[:, place]) - start
        wide = min(-(-int(length.max(initial=1)) // 8), _MOST_WIDE)
        cells = np.empty((len(start), wide), np.uint64)
        for i in range(wide):
            cells[:, i] = self.eights[start + 8 * i] & _KEEP[np.clip(length - 8 * i, 0, 8)]
        index, texts = _distinct(cells)
        if int(length.max(initial=0)) > 8 * wide:
            index, texts = np.where(length > 8 * wide, len(texts), index), [*texts, ""]
        return index, texts

    def are(self, place: int, name: str) -> NDArray[np.bool_]:
        """Whether the words at a place, behind the first, are the name: up to 8 bytes."""
        start = self.spaces[:, place - 1] + 1
        length = (self.end if place == self.count - 1 else self.spaces[:, place]) - start
        wanted = int.from_bytes(name.encode(), "little")
        said: NDArray[np.bool_] = (self.eights[start] & _KEEP[len(name)]) == wanted
        said &= length == len(name)
        return said

    def first(self) -> list[str]:
        """The words of the first line."""
        return self.raw[self.begin[0] : self.end[0]].tobytes().decode("utf-8", "replace").split(" ")


def _distinct(cells: NDArray[np.uint64]) -> tuple[Ints, list[str]]:
    """(which distinct word each line has, the words). Neighbours are often equal, and cost nothing then."""
    new = np.ones(len(cells), bool)
    new[1:] = (cells[1:] != cells[:-1]).any(axis=1) if cells.shape[1] > 1 else cells[1:, 0] != cells[:-1, 0]
    heads = np.ascontiguousarray(cells[new])
    width = pa.binary(8 * cells.shape[1])
    column = pa.FixedSizeBinaryArray.from_buffers(width, len(heads), [None, pa.py_buffer(heads)]).dictionary_encode()
    texts = [cell.rstrip(b"\0").decode("utf-8", "replace") for cell in column.dictionary.to_pylist()]
    index = column.indices.to_numpy().astype(np.int64)
    return index if len(heads) == len(cells) else index[np.cumsum(new) - 1], texts


_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
"""Masks of the first n of 8 bytes."""


def calls(text: pa.Array) -> Calls:
    """Calls of an Arrow column of messages without nulls."""
    raw, edge = _bytes_of(text)
    spaces = np.flatnonzero(raw == ord(" "))
    first = np.searchsorted(spaces, edge)
    count = np.diff(first)
    found = {name: np.zeros(len(text), np.int64) for name in ("known", "seq", "elements", "type", "size")}
    names: dict[str, tuple[Ints, list[str]]] = {n: (np.zeros(len(text), np.int64), [""]) for n in ("op", "comm")}
    for number in np.unique(count).tolist():
        rows = np.flatnonzero(count == number)
        if len(rows) == len(count):
            inner = spaces.reshape(-1, number) if number else np.zeros((len(rows), 0), np.int64)
        else:
            inner = spaces[first[rows][:, None] + np.arange(number)]
        _read(_Words(raw, (edge[rows], edge[rows + 1]), inner), rows, found, names)
    labels = {
        n: pa.DictionaryArray.from_arrays(pa.array(i.astype(np.int32)), pa.array(t)) for n, (i, t) in names.items()
    }
    return Calls(found.pop("known").astype(bool), **labels, **found)


def _bytes_of(text: pa.Array) -> tuple[Bytes, Ints]:
    """Bytes of the column with 64 more behind, and where each line begins and the last one ends in them."""
    _, places, data = text.buffers()
    edge = np.frombuffer(places, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    size = int(edge[-1] - edge[0]) if len(edge) else 0
    raw = np.zeros(size + 8 * _MOST_WIDE, np.uint8)
    if size:
        raw[:size] = np.frombuffer(data, np.uint8)[edge[0] : edge[-1]]
    return raw, edge - edge[0]


def _read(words: _Words, rows: Ints, found: dict[str, Ints], names: dict[str, tuple[Ints, list[str]]]) -> None:
    """Read lines of one number of words into `found` and `names`."""
    said = words.first()
    if not all(name in said for name in _NAMES) or said.index("comm") + 2 >= words.count:
        return
    at = {name: said.index(name) for name in _NAMES}
    known = np.ones(len(rows), bool)
    for name, place in at.items():
        known &= words.are(place, name)
    values = {"op": 0, "seq": at["opCount"] + 1, "elements": at["count"] + 1, "type": at["datatype"] + 1}
    for column, place in {**values, "comm": at["comm"] + 1, "size": at["comm"] + 2}.items():
        index, texts = words.at(place)
        read = [match[1] if (match := _VALUES[column].match(text)) else None for text in texts]
        known &= np.array([text is not None for text in read], bool)[index]
        if column in names:
            of_row, before = names[column]
            of_row[rows] = index + len(before)
            names[column] = of_row, [*before, *(text or "" for text in read)]
        else:
            base = 16 if column == "seq" else 10
            found[column][rows] = np.array([int(text or "0", base) for text in read], np.int64)[index]
    found["known"][rows] = known
