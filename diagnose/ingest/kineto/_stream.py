"""A window over a stream of bytes that keeps its place: filled at one end, consumed at the other.

The window is one reusable array, so a long file costs the memory of one block, not of all its pieces.
Positions inside the window are relative; `offset` is the place of its first byte in the decompressed file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PAD = 64  # readable bytes behind the end, so that fixed-width looks ahead stay inside the array


class Window:
    """The next bytes of a document: `view` holds those not consumed yet."""

    def __init__(self, pieces: Iterator[bytes], block: int) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._block = block
        self._data = bytearray(block + PAD)
        self._array: Bytes = np.frombuffer(self._data, np.uint8)
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

    def text(self, start: int = 0, stop: int | None = None) -> bytes:
        """A copy of part of the window."""
        return self._array[start : self.size if stop is None else min(stop, self.size)].tobytes()

    def find(self, text: bytes, start: int = 0) -> int:
        """Position of the first occurrence from `start` on, or -1."""
        return self._data.find(text, start, self.size)

    def fill(self) -> None:
        """Add one block, or what is left; sets `ended` once the stream has no more."""
        wanted = self.size + self._block
        if wanted + PAD > len(self._array):
            data = bytearray(max(wanted, 2 * self.size) + PAD)
            data[: self.size] = self._data[: self.size]
            self._data, self._array = data, np.frombuffer(data, np.uint8)
        while self.size < wanted:
            if not self._piece:
                piece = next(self._pieces, None)
                if piece is None:
                    self.ended = True
                    return
                self._piece = memoryview(piece)
            taken = self._piece[: wanted - self.size]
            self._array[self.size : self.size + len(taken)] = np.frombuffer(taken, np.uint8)
            self.size += len(taken)
            self._piece = self._piece[len(taken) :]

    def consume(self, count: int) -> None:
        """Forget the first `count` bytes."""
        left = self.size - count
        self._array[:left] = self._array[count : self.size].copy()
        self.size = left
        self.offset += count
