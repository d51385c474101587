"""Records of a TensorBoard event file, and the scalars in them: the few fields of the protocol buffers that matter.

A file is a chain of records (TFRecord): length (uint64), its masked CRC-32C (uint32), that many bytes, their CRC. A
record is an `Event`: wall time (double), step (int64), and a `Summary` whose values have a tag and a plain float, or a
tensor of one number (how TensorFlow 2 and newer writers store scalars). Lengths say where the next record begins, so
records are walked one by one; a record whose length cannot be is the end of what can be read. Checksums of data are
not verified: a wrong bit there changes one value, not the walk.
Sources: tensorflow/core/lib/io/record_writer.cc, core/util/event.proto, core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_RECORD_BYTES = 1 << 30
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_FLOATS = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}
"""DataType of TensorFlow to numpy, of what a scalar can be."""


class Scalars(NamedTuple):
    """Scalars in file order, their tags by number, and what was no scalar."""

    step: npt.NDArray[np.int64]
    wall_s: npt.NDArray[np.float64]
    tag: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    tags: list[str]
    others_count: int
    damaged_bytes: int
    """Bytes at the end that hold no whole record."""


def scalars(pieces: Iterator[bytes]) -> Scalars:
    """All scalars of a file given in pieces."""
    tags: dict[bytes, int] = {}
    steps: list[int] = []
    walls: list[float] = []
    numbers: list[int] = []
    values: list[float] = []
    others, rest = 0, b""
    for piece in pieces:
        data, at = rest + piece, 0
        while (end := _record_end(data, at)) is not None:
            wall, step, summaries = _event(data, at + _HEADER_BYTES, end - _FOOTER_BYTES)
            for start, stop in summaries:
                tag, value = _value(data, start, stop)
                if value is None or not tag:
                    others += 1
                    continue
                steps.append(step)
                walls.append(wall)
                numbers.append(tags.setdefault(tag, len(tags)))
                values.append(value)
            at = end
        rest = data[at:]
    named = [tag.decode("utf-8", "replace") for tag in tags]
    return Scalars(
        np.array(steps, np.int64), np.array(walls, np.float64), np.array(numbers, np.int64),
        np.array(values, np.float64), named, others, len(rest),
    )  # fmt: skip


def _record_end(data: bytes, at: int) -> int | None:
    """Where the record at `at` ends; None where it is not whole, or its length cannot be."""
    if len(data) - at < _HEADER_BYTES:
        return None
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + _HEADER_BYTES + int(length) + _FOOTER_BYTES
    return end if length <= MAX_RECORD_BYTES and end <= len(data) else None


def _event(data: bytes, at: int, end: int) -> tuple[float, int, list[tuple[int, int]]]:
    """Wall time, step, and where the values of the summary lie."""
    wall, step = 0.0, 0
    values: list[tuple[int, int]] = []
    for field, kind, start, stop, number in _fields(data, at, end):
        if field == 1 and kind == 1:
            (wall,) = struct.unpack_from("<d", data, start)
        elif field == 2 and kind == 0:
            step = number if number < 1 << 63 else number - (1 << 64)
        elif field == 5 and kind == 2:
            values += [(a, b) for f, k, a, b, _ in _fields(data, start, stop) if f == 1 and k == 2]
    return wall, step, values


def _value(data: bytes, at: int, end: int) -> tuple[bytes, float | None]:
    """Tag and number of one value of a summary; None where it is none."""
    tag, value = b"", None
    for field, kind, start, stop, _ in _fields(data, at, end):
        if field == 1 and kind == 2:
            tag = data[start:stop]
        elif field == 2 and kind == 5:
            (value,) = struct.unpack_from("<f", data, start)
        elif field == 8 and kind == 2:
            value = _tensor(data, start, stop)
    return tag, value


def _tensor(data: bytes, at: int, end: int) -> float | None:
    """The number of a tensor that holds exactly one."""
    dtype, found = 0, []
    for field, kind, start, stop, number in _fields(data, at, end):
        if field == 1 and kind == 0:
            dtype = number
        elif field in (4, 5, 6) and kind == 2 and dtype in _FLOATS:
            form = {4: _FLOATS[dtype], 5: "<f4", 6: "<f8"}[field]
            if (stop - start) % np.dtype(form).itemsize == 0:
                found = np.frombuffer(
                    data, form, offset=start, count=(stop - start) // np.dtype(form).itemsize
                ).tolist()
        elif field == 5 and kind == 5:
            found = list(struct.unpack_from("<f", data, start))
        elif field == 6 and kind == 1:
            found = list(struct.unpack_from("<d", data, start))
    return float(found[0]) if len(found) == 1 else None


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(field, wire type, start, end, number) of a message; stops where the bytes make no sense."""
    while at < end:
        key, at = _varint(data, at, end)
        field, kind, number = key >> 3, key & 7, 0
        if kind == 0:
            start = at
            number, at = _varint(data, at, end)
        elif kind in (1, 5):
            start, at = at, at + (8 if kind == 1 else 4)
        elif kind == 2:
            length, start = _varint(data, at, end)
            at = start + length
        else:
            return
        if at > end or at <= start - 1:
            return
        yield field, kind, start, at, number


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable-length number and where it ends; behind `end` where it is cut."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end + 1
