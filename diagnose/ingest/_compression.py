"""Undo gzip, zstd, bzip2 and xz on a stream of byte pieces, and keep what is readable of a damaged one.

What counts is the content: the magic bytes decide, never the file's name. A gzip stream is any number of members
(RFC 1952), each with optional FEXTRA, FNAME, FCOMMENT and FHCRC fields, possibly empty; zero bytes after the last
member are padding. A cut or damaged stream ends quietly after its last readable byte and leaves one note.
Method: ISA-L inflates (several times faster than zlib); only after damage zlib goes over the same member again, in
ever smaller bites, because ISA-L gives nothing of the call in which it fails.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from isal import igzip_lib

Note = Callable[[str, int | None, str], None]
"""note(problem, offset in the decompressed bytes or None, one line for a person)"""
Reopen = Callable[[], Iterator[bytes]]
"""The same compressed bytes again from the start."""

PIECE_BYTES = 8 << 20  # output of one call to a decompressor: measured best for ISA-L, and what bounds a zip bomb
MAGIC_BYTES = 16  # what `compression_of` wants to see
_BITE_BYTES = 1 << 18  # input of one call; what a member does not use of it is copied back
_SMALL_BITE_BYTES = 1 << 14

_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh", "xz": b"\xfd7zXZ\x00"}
_ENDINGS = {".gz": "gzip", ".tgz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}


def compression_of(head: bytes) -> str | None:
    """`gzip`, `zstd`, `bzip2`, `xz` or None, from the first bytes."""
    if head[:3] == b"BZh" and not (head[3:4].isdigit() and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")):
        return None
    return next((kind for kind, magic in _MAGIC.items() if head.startswith(magic)), None)


def compression_named(name: str) -> str | None:
    """The compression that a file's name promises."""
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)


def decompressed(kind: str, reopen: Reopen, note: Note) -> Iterator[bytes]:
    """Decompressed pieces of at most PIECE_BYTES; ends quietly where the stream is cut or damaged."""
    if kind == "gzip":
        return _gunzip(reopen, note)
    if kind == "zstd":
        return _zstd(reopen, note)
    return _by_object(bz2.BZ2Decompressor if kind == "bzip2" else lzma.LZMADecompressor, kind, reopen, note)


def _gunzip(reopen: Reopen, note: Note) -> Iterator[bytes]:
    compressed = PieceReader(reopen())
    produced = 0
    while True:
        magic = compressed.peek(_BITE_BYTES, skip=b"\0")[:2]  # zeros between members are padding
        start = compressed.position
        if not b"\x1f\x8b".startswith(magic):
            note(
                "damaged_compression", produced, f"what follows the gzip data at compressed byte {start:,} is not gzip"
            )
            return
        if not magic:
            return
        given = 0
        try:
            for out in _members(igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP), compressed):
                given += len(out)
                yield out
        except (igzip_lib.IsalError, EOFError) as error:  # type: ignore[misc]  # the stub lacks its base
            why = "cut" if isinstance(error, EOFError) else f"damaged ({error})"
            compressed = PieceReader(reopen())
            compressed.skip(start)
            again = _Salvage(compressed, given)
            for out in again:
                given += len(out)
                yield out
            if not again.complete:
                readable = produced + given
                note("damaged_compression", readable, f"the gzip stream is {why}; {readable:,} bytes were readable")
                return
        produced += given


def _members(inflate: Any, compressed: PieceReader) -> Iterator[bytes]:
    """What one member holds. EOFError where the stream ends inside it.

    ISA-L (1.9) misreads a header with a checksum or extra field that arrives in several bites; `peek` has made the
    first bite long enough for any real header.
    """
    bite = b""
    while not inflate.eof:
        if inflate.needs_input:
            bite = compressed.read_some(_BITE_BYTES)
            if not bite:
                raise EOFError
        out = inflate.decompress(bite, PIECE_BYTES)
        bite = b""
        if out:
            yield out
    compressed.put_back(inflate.unused_data)


class _Salvage:
    """What zlib reads of a member beyond its first `known` bytes; afterwards, whether it was complete after all."""

    def __init__(self, compressed: PieceReader, known: int) -> None:
        self.compressed, self.known, self.complete = compressed, known, False

    def __iter__(self) -> Iterator[bytes]:
        inflate, failed = zlib.decompressobj(wbits=31), False
        while not inflate.eof and not failed and (bite := self.compressed.read_some(_SMALL_BITE_BYTES)):
            before = inflate.copy()
            try:
                out = inflate.decompress(bite)
            except zlib.error:
                out, failed = _byte_by_byte(before, bite), True
            if len(out) > self.known:
                yield out[self.known :]
            self.known = max(0, self.known - len(out))
        self.complete = inflate.eof and not failed
        if self.complete:
            self.compressed.put_back(inflate.unused_data)


def _byte_by_byte(inflate: Any, bite: bytes) -> bytes:
    out = bytearray()
    try:
        for at in range(len(bite)):
            out += inflate.decompress(bite[at : at + 1])
    except zlib.error:
        pass  # the caller knows that this bite is damaged: here is how far it can be read
    return bytes(out)


def _by_object(new: Callable[[], Any], kind: str, reopen: Reopen, note: Note) -> Iterator[bytes]:
    """bzip2 and xz, through the standard library: several streams one after the other, zero padding between."""
    compressed, produced = PieceReader(reopen()), 0
    try:
        while compressed.peek(1, skip=b"\0"):
            for out in _members(new(), compressed):
                produced += len(out)
                yield out
    except (OSError, EOFError, lzma.LZMAError) as error:
        why = "cut" if isinstance(error, EOFError) else f"damaged ({error})"
        note("damaged_compression", produced, f"the {kind} stream is {why}; {produced:,} bytes were readable")


def _zstd(reopen: Reopen, note: Note) -> Iterator[bytes]:
    """zstd through Arrow, which has it built in; frames one after the other."""
    produced = 0
    with pa.CompressedInputStream(pa.PythonFile(PieceReader(reopen()), mode="r"), "zstd") as stream:
        while True:
            try:
                out = stream.read(1 << 20)
            except OSError as error:
                note(
                    "damaged_compression",
                    produced,
                    f"the zstd stream is cut or damaged ({error}) after {produced:,} bytes",
                )
                return
            if not out:
                return
            produced += len(out)
            yield out


class PieceReader:
    """`read(n)` over an iterator of byte pieces, forwards only; holds one piece at a time."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held, self._at = pieces, b"", 0
        self.position = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        """`count` bytes, fewer only at the end of the stream; everything that is left for a negative count."""
        parts: list[bytes] = []
        wanted = count if count >= 0 else 1 << 62
        while wanted:
            part = self.read_some(wanted)
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def read_some(self, limit: int) -> bytes:
        """1 to `limit` bytes without joining pieces; empty at the end."""
        while self._at >= len(self._held):
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._held, self._at = piece, 0
        whole = self._at == 0 and limit >= len(self._held)
        part = self._held if whole else self._held[self._at : self._at + limit]
        self._at += len(part)
        self.position += len(part)
        return part

    def peek(self, count: int, skip: bytes = b"") -> bytes:
        """The next `count` bytes (fewer only at the end), still to be read; leading bytes in `skip` are dropped."""
        while True:
            seen = self._held[self._at : self._at + count]
            drop = len(seen) - len(seen.lstrip(skip)) if skip else 0
            if drop:
                self._at += drop
                self.position += drop
            elif len(seen) == count or not (more := next(self._pieces, b"")):
                return seen
            else:
                self._held, self._at = self._held[self._at :] + more, 0

    def put_back(self, data: bytes) -> None:
        """Undo the reading of the last bytes."""
        if self._at >= len(data):
            self._at -= len(data)  # they are still held: the usual case, without a copy
        else:
            self._held, self._at = data + self._held[self._at :], 0
        self.position -= len(data)

    def skip(self, count: int) -> None:
        """Drop `count` bytes."""
        while count > 0:
            part = self.read_some(count)
            if not part:
                return
            count -= len(part)

    def tell(self) -> int:
        """Bytes read so far."""
        return self.position

    def readable(self) -> bool:
        """True: what file objects answer."""
        return True

    def close(self) -> None:
        """Give the underlying stream back."""
        self.closed = True
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
