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
_BITE_BYTES = 1 << 16

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
    pieces = reopen()
    held, start, produced = b"", 0, 0  # input not yet used; where it starts in the file; bytes given out so far
    while True:
        held, start = _next_member(held, start, pieces)
        if not held:
            return
        if not b"\x1f\x8b".startswith(held[:2]):
            note("damaged_compression", produced, f"what follows the gzip data at compressed byte {start} is not gzip")
            return
        member_start, member_produced = start, produced
        inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        why = "cut"
        while not inflate.eof:
            if inflate.needs_input and not held:
                held = next(pieces, b"")
                if not held:
                    break
            try:
                out = inflate.decompress(held, PIECE_BYTES)
            except igzip_lib.IsalError as error:  # type: ignore[misc]  # the stub lacks its base
                why = f"damaged ({error})"
                break
            start += len(held)
            held = b""
            produced += len(out)
            if out:
                yield out
        if not inflate.eof:
            pieces_again = _skip(reopen(), member_start)
            for out in _salvage(pieces_again, produced - member_produced):
                produced += len(out)
                yield out
            note("damaged_compression", produced, f"the gzip stream is {why}; {produced:,} bytes were readable")
            return
        held = inflate.unused_data
        start -= len(held)


def _next_member(held: bytes, start: int, pieces: Iterator[bytes]) -> tuple[bytes, int]:
    """Skip zero padding; input that begins a member (2 bytes at least, unless the file ends), and its offset."""
    while True:
        kept = held.lstrip(b"\0")
        start += len(held) - len(kept)
        if len(kept) >= 2:
            return kept, start
        more = next(pieces, b"")
        if not more:
            return kept, start
        held = kept + more


def _skip(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    for piece in pieces:
        if count < len(piece):
            yield piece[count:]
        count = max(0, count - len(piece))


def _salvage(pieces: Iterator[bytes], known: int) -> Iterator[bytes]:
    """What zlib can still read of a damaged member beyond its first `known` bytes."""
    inflate = zlib.decompressobj(wbits=31)
    for piece in pieces:
        for at in range(0, len(piece), _BITE_BYTES):
            bite, before = piece[at : at + _BITE_BYTES], inflate.copy()
            try:
                out, failed = inflate.decompress(bite), False
            except zlib.error:
                out, failed = _byte_by_byte(before, bite), True
            if len(out) > known:
                yield out[known:]
            known = max(0, known - len(out))
            if failed:
                return


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
    pieces, held, produced = reopen(), b"", 0
    while True:
        held, _ = _next_member(held, 0, pieces)
        if not held:
            return
        inflate = new()
        while not inflate.eof:
            if inflate.needs_input and not held:
                held = next(pieces, b"")
            if inflate.needs_input and not held:
                note("damaged_compression", produced, f"the {kind} stream is cut; {produced:,} bytes were readable")
                return
            try:
                out = inflate.decompress(held, PIECE_BYTES)
            except (OSError, lzma.LZMAError) as error:
                note(
                    "damaged_compression", produced, f"the {kind} stream is damaged ({error}) after {produced:,} bytes"
                )
                return
            held = b""
            produced += len(out)
            if out:
                yield out
        held = inflate.unused_data


def _zstd(reopen: Reopen, note: Note) -> Iterator[bytes]:
    """zstd through Arrow, which has it built in; frames one after the other."""
    produced = 0
    with pa.CompressedInputStream(pa.PythonFile(PieceReader(reopen()), mode="r"), "zstd") as stream:
        while True:
            try:
                out = stream.read(_BITE_BYTES * 16)
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
