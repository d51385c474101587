"""A window over a stream of bytes that keeps its place: filled at one end, consumed at the other.

The window is one reusable array and two more for what is read ahead and what was just consumed, so a long
file costs the memory of three blocks, not of all its pieces.
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
        self._spares: list[Bytes] = []  # arrays of the last two windows that joined, the older one first
        self._ahead: Ahead | None = None
        self._begin = 0  # of the window in its array
        self.size = 0
        self.offset = 0
        self.ended = False

    @property
    def view(self) -> Bytes:
        """The bytes in the window (writable, valid until the next `fill` or `consume`)."""
        return self._array[self._begin : self._begin + self.size]

    @property
    def padded(self) -> Bytes:
        """The window and `PAD` bytes behind it, whose content means nothing."""
        return self._array[self._begin : self._begin + self.size + PAD]

    @property
    def reads_ahead(self) -> bool:
        """Whether a block was read that is not in the window yet."""
        return self._ahead is not None

    def text(self, start: int = 0, stop: int | None = None) -> bytes:
        """A copy of part of the window."""
        return self.view[start:stop].tobytes()

    def fill(self) -> None:
        """Add one block, or what is left; sets `ended` once the stream has no more."""
        assert self._ahead is None, "what was read ahead comes first"
        wanted = self.size + self._block
        array = self._array if wanted + PAD <= len(self._array) else _empty(max(wanted, 2 * self.size))
        array[: self.size] = self.view
        self._array, self._begin = array, 0
        self.size, self.ended = self._read(self._array, self.size)

    def look_ahead(self, start: int) -> Ahead:
        """Read one block while the window, and the one before it, stay as they are; for another thread."""
        tail = self.view[start:]
        wanted = len(tail) + self._block
        array = self._spares.pop(0) if len(self._spares) > 1 else _empty(0)
        if wanted + PAD > len(array):
            array = _empty(wanted + self._block // 16)
        array[: len(tail)] = tail
        self._ahead = Ahead(start, array, *self._read(array, len(tail)))
        return self._ahead

    def consume(self, count: int) -> None:
        """Forget the first `count` bytes; what was read ahead joins the window."""
        self.offset += count
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            self._begin, self.size = self._begin + count, self.size - count
            return
        between = self.view[count : ahead.start].copy()
        self._spares = [*self._spares[-1:], self._array]
        self._array, self.ended = ahead.array, ahead.ended
        self._begin = max(0, count - ahead.start)
        self.size = ahead.size - self._begin
        if len(between):
            self._array = np.concatenate([between, self.padded])
            self.size += len(between)

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
