"""Lines of a log as its processes printed them, whatever carried it: block by block, as Arrow strings.

Undone here: container runtimes (CRI partial lines, docker's JSON), colours and links of terminals (also where the
escape byte itself was lost), progress bars that redraw with carriage returns. Launcher prefixes stay on the line
(`rank_of` reads the one that names a global rank): a record is found by its own marks wherever it begins.
Numbers of lines are those of the file, from 1: a redrawn bar is one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest import Source

BLOCK_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 20
_ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\x9b[0-?]*[@-~]")
_LOST_ESCAPES = re.compile(rb"\[(?:\d{1,3}(?:;\d{1,3})*)?m(?=[^\w.])|\[(?:0|[349]\d|[34]8;[25];[\d;]+)m")
_CRI = re.compile(rb"^(?:\S+ )?\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([PF])(?: |$)")
_DOCKER = re.compile(rb'^\s*\{"log"\s*:\s*"')
_RANK = re.compile(r"\[(?:rank|Rank |RANK )(\d{1,6})\]|^\[1,(\d{1,6})\]<std(?:out|err)>|\bRank (\d{1,6})\]")


class Lines(NamedTuple):
    """Lines of one block: numbers in the file and texts."""

    number: npt.NDArray[np.int64]
    text: pa.Array

    def take(self, kept: npt.NDArray[np.bool_] | pa.Array) -> Lines:
        """The lines where `kept` is true."""
        mask = np.asarray(kept)
        if mask.all():
            return self
        return Lines(self.number[mask], self.text.filter(pa.array(mask)))

    def matching(self, pattern: str) -> Lines:
        """The lines in which the RE2 pattern is found."""
        return self.take(pc.match_substring_regex(self.text, pattern).to_numpy(zero_copy_only=False))

    def holding(self, literal: str) -> Lines:
        """The lines in which the text is found."""
        if not self.count(literal.encode()):
            return Lines(self.number[:0], self.text.slice(0, 0))
        return self.take(pc.match_substring(self.text, literal).to_numpy(zero_copy_only=False))

    def count(self, literal: bytes) -> int:
        """How often the bytes are found in all lines together."""
        _, places, data = self.text.buffers()
        edge = np.frombuffer(places, np.int32)[self.text.offset : self.text.offset + len(self.text) + 1]
        return data[edge[0] : edge[-1]].to_pybytes().count(literal) if len(self.text) else 0

    def rows(self) -> Iterator[tuple[int, str]]:
        """(number, text) one by one: for few lines."""
        return zip(self.number.tolist(), self.text.to_pylist(), strict=True)

    def __len__(self) -> int:
        return len(self.number)


def rank_of(text: str) -> int | None:
    """Global rank that a launcher or torch put on the line (`[rank3]:`, `[1,3]<stdout>`); local ranks do not count."""
    match = _RANK.search(text)
    return next((int(group) for group in match.groups() if group), None) if match else None


def blocks(source: Source) -> Iterator[Lines]:
    """The document in blocks of whole lines, the next one read while one is looked at."""
    found = _blocks(source)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, found, None)
        while (block := following.result()) is not None:
            following = pool.submit(next, found, None)
            yield block


def _blocks(source: Source) -> Iterator[Lines]:
    unpack = _unpacker(source.head(1 << 16))
    number, rest = 1, b""
    for piece in source.chunks(BLOCK_BYTES):
        data = rest + piece
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) < 4 * BLOCK_BYTES:
            rest = data
            continue
        cut = cut or len(data)
        rest = data[cut:]
        block = data[:cut]
        lines, count = _lines(unpack(block), number)
        yield lines
        number += count if unpack is bytes else block.count(b"\n")
    if rest:
        yield _lines(unpack(rest + b"\n"), number)[0]


def plain(data: bytes) -> bytes:
    """The text without colours and links of terminals."""
    if b"\x1b" in data or b"\x9b" in data:
        data = _ESCAPES.sub(b"", data)
    if _may_reset(data):  # colours come with a reset
        data = _LOST_ESCAPES.sub(b"", data)
    return data


def _may_reset(data: bytes) -> bool:
    """Whether the text may hold `[0m`, `[39m` or `[m`; three times as fast as to look for them."""
    raw = np.frombuffer(data, np.uint8)
    before = raw[np.flatnonzero(raw[1:] == ord("m"))]
    return bool(((before == ord("0")) | (before == ord("9")) | (before == ord("["))).any())


def _lines(data: bytes, first: int) -> tuple[Lines, int]:
    """Lines of a block that ends with a newline, without empty ones, and how many there were with them."""
    data = plain(data)
    if not data.isascii():
        data = data.decode("utf-8", "replace").encode()
    if not data.endswith(b"\n"):
        data += b"\n"
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == 10)
    count = len(ends)
    number = np.arange(first, first + count)
    if b"\r" in data:
        ends = np.flatnonzero((raw == 10) | (raw == 13))
        newline = raw[ends] == 10
        number = first + np.cumsum(newline) - newline
    starts = np.concatenate(([0], ends[:-1] + 1))
    kept = np.flatnonzero(ends > starts)
    text = data.translate(None, b"\r\n") if b"\r" in data else data.replace(b"\n", b"")
    offsets = np.concatenate(((starts - np.arange(len(starts)))[kept], [len(text)])).astype(np.int32)
    strings = pa.StringArray.from_buffers(len(kept), pa.py_buffer(offsets), pa.py_buffer(text))
    return Lines(number[kept].astype(np.int64), strings), count


def _unpacker(head: bytes) -> Callable[[bytes], bytes]:
    """What takes the container runtime's wrapping off a block."""
    first = head.split(b"\n", 1)[0]
    if _DOCKER.match(first):
        return _undocker
    if _CRI.match(first):
        return _Cri()
    return bytes


def _undocker(data: bytes) -> bytes:
    """Text inside `{"log": "..."}` lines; others stay."""
    out = []
    for line in data.splitlines(keepends=True):
        try:
            inner = json.loads(line)["log"] if _DOCKER.match(line) else None
        except (ValueError, KeyError, TypeError):
            inner = None
        out.append(line if not isinstance(inner, str) else inner.encode("utf-8", "replace"))
    return b"".join(out)


class _Cri:
    """Joins partial (P) with final (F) lines of each stream, over blocks."""

    def __init__(self) -> None:
        self.held = {b"stdout": b"", b"stderr": b""}

    def __call__(self, data: bytes) -> bytes:
        out = []
        for line in data.splitlines():
            match = _CRI.match(line)
            if match is None:
                out.append(line)
                continue
            stream, kind = match[1], match[2]
            self.held[stream] += line[match.end() :]
            if kind == b"F" or len(self.held[stream]) > MAX_LINE_BYTES:
                out.append(self.held[stream])
                self.held[stream] = b""
        return b"\n".join([*out, b""])
