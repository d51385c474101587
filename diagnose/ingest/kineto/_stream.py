"""A window over a stream of bytes that keeps its place: filled at one end, consumed at the other.

The window is one reusable array and a second one for what is read ahead, so a long file costs the memory of two
blocks, not of all its pieces.
Positions inside the window are relative; `offset` is the place of its first byte in the decompressed file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PAD = 64  # readable bytes behind the end, so that fixed-width looks ahead stay inside the array


class Ahead(NamedTuple):
    """The window that follows once its first `start` bytes are consumed: that tail, and one more block."""

    start: int
    array: Bytes
    size: int
    ended: bool

    @property
    def padded(self) -> Bytes:
        """The bytes and `PAD` more behind them, whose content means nothing."""
        return self.array[: self.size + PAD]


class Window:
    """The next bytes of a document: `view` holds those not consumed yet."""

    def __init__(self, pieces: Iterator[bytes], block: int) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._block = block
        self._array = _empty(block)
        self._spare: Bytes | None = None
        self._ahead: Ahead | None = None
        self.size = 0
        self.offset = 0
        self.ended = False

    @property
    def view(self) -> Bytes:
        """The bytes in the window (writable, valid until the next `fill` or `consume`)."""
        return self._array[: self.size]

    @property
    def padded(self) -> Bytes:
        """The window and `PAD` bytes behind it, whose content means nothing."""
        return self._array[: self.size + PAD]

    @property
    def reads_ahead(self) -> bool:
        """Whether a block was read that is not in the window yet."""
        return self._ahead is not None

    def text(self, start: int = 0, stop: int | None = None) -> bytes:
        """A copy of part of the window."""
        return self._array[start : self.size if stop is None else min(stop, self.size)].tobytes()

    def fill(self) -> None:
        """Add one block, or what is left; sets `ended` once the stream has no more."""
        assert self._ahead is None, "what was read ahead comes first"
        wanted = self.size + self._block
        if wanted + PAD > len(self._array):
            array = _empty(max(wanted, 2 * self.size))
            array[: self.size] = self.view
            self._array = array
        self.size, self.ended = self._read(self._array, self.size)

    def look_ahead(self, start: int) -> Ahead:
        """Read one block while the window stays as it is; for another thread, one at a time."""
        tail = self.view[start:]
        wanted = len(tail) + self._block
        if self._spare is None or wanted + PAD > len(self._spare):
            self._spare = _empty(wanted + self._block // 16)
        array = self._spare
        array[: len(tail)] = tail
        self._ahead = Ahead(start, array, *self._read(array, len(tail)))
        return self._ahead

    def consume(self, count: int) -> None:
        """Forget the first `count` bytes; what was read ahead joins the window."""
        self.offset += count
        if self._ahead is None:
            self._drop(count)
            return
        ahead, self._ahead = self._ahead, None
        between = self._array[count : ahead.start].copy()
        self._array, self._spare, self.size, self.ended = ahead.array, self._array, ahead.size, ahead.ended
        if len(between):
            self._put_back(between)
        elif count > ahead.start:
            self._drop(count - ahead.start)

    def _drop(self, count: int) -> None:
        left = self.size - count
        self._array[:left] = self._array[count : self.size].copy()
        self.size = left

    def _put_back(self, before: Bytes) -> None:
        array = _empty(len(before) + self.size)
        array[: len(before)] = before
        array[len(before) : len(before) + self.size] = self.view
        self._array, self.size = array, len(before) + self.size

    def _read(self, array: Bytes, size: int) -> tuple[int, bool]:
        """Put one block behind the first `size` bytes: how many there are then, and whether the stream ended."""
        wanted = size + self._block
        while size < wanted:
            if not self._piece:
                piece = next(self._pieces, None)
                if piece is None:
                    return size, True
                self._piece = memoryview(piece)
            taken = self._piece[: wanted - size]
            array[size : size + len(taken)] = np.frombuffer(taken, np.uint8)
            size += len(taken)
            self._piece = self._piece[len(taken) :]
        return size, False


def _empty(size: int) -> Bytes:
    return np.zeros(size + PAD, np.uint8)
