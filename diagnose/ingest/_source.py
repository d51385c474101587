"""One input document as a stream of UTF-8 bytes: a file, an archive member or an object in a bucket.

A source knows how to open itself again (so it travels to other processes), undoes compression and text encoding by
content, and keeps a quality row for everything that was not as its name promised. It never holds a whole file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest._archives import Member, member_pieces
from diagnose.ingest._compression import (
    MAGIC_BYTES,
    PieceReader,
    Reopen,
    compression_named,
    compression_of,
    decompressed,
)
from diagnose.ingest._encoding import to_utf8
from diagnose.ingest._storage import pieces_of, shown

HEAD_BYTES = 64 << 10
CHUNK_BYTES = 32 << 20
_MAX_LAYERS = 2  # a gzip of a gzip happens; more is an attack


class Source:
    """One decompressed document stream, not yet parsed.

    `label` is the path as given (`archive!member` inside archives), `name` its last component, `size_bytes` what it
    takes on disk, `quality` the problems met while opening and decoding (dicts: problem, count, byte_offset in the
    decompressed document, detail). `progress`, if set, is called with the compressed bytes consumed since its last
    call; these sum to about `size_bytes`.
    """

    def __init__(self, path: str, members: tuple[Member, ...] = (), size_bytes: int | None = None) -> None:
        self.path, self.members = path, members
        self.label = "!".join([shown(path), *(shown(m.name) for m in members)])
        self.name = (members[-1].name if members else self.label).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
        self.size_bytes = members[-1].packed_bytes if members else (size_bytes or 0)
        self.quality: list[dict[str, Any]] = []
        self.progress: Callable[[int], None] | None = None
        self._started: tuple[bytes, Iterator[bytes]] | None = None

    def __repr__(self) -> str:
        return f"Source({self.label!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Source, (self.path, self.members, self.size_bytes)

    @property
    def folders(self) -> list[str]:
        """Folders above the document, innermost first; an archive counts as one."""
        parts = self.label.replace("\\", "/").replace("!", "/").split("/")[:-1]
        return [part for part in reversed(parts) if part not in ("", ".", "..")]

    def note(self, problem: str, byte_offset: int | None, detail: str) -> None:
        """Keep a quality row, once."""
        row = {"problem": problem, "count": 1, "byte_offset": byte_offset, "detail": detail}
        if row not in self.quality:
            self.quality.append(row)

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first `size` bytes of the document as UTF-8, without a byte order mark. InputError if unreadable."""
        pieces = self._document()
        reader = PieceReader(pieces)
        start = reader.read(size)
        if self.members:  # going back in a compressed archive means reading it from its start: carry on from here
            self._started = (start, _rest(reader, CHUNK_BYTES))
        else:
            reader.close()
        return start

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The whole document as UTF-8 in pieces of about `size` bytes. InputError if it cannot be read.

        A cut or damaged stream ends quietly after its last readable byte, with a row in `quality`.
        """
        start, pieces = self._started or (b"", self._document())
        self._started = None
        parts, held_bytes = [start] if start else [], len(start)
        for piece in pieces:
            parts.append(piece)
            held_bytes += len(piece)
            if held_bytes >= size:
                yield parts[0] if len(parts) == 1 else b"".join(parts)
                parts, held_bytes = [], 0
        if parts:
            yield b"".join(parts)

    def whole(self, max_bytes: int, found: str, expected: str) -> bytes:
        """The whole document as UTF-8, for formats that are small. InputError in these words above `max_bytes`."""
        pieces, total = [], 0
        for piece in self.chunks():
            pieces.append(piece)
            total += len(piece)
            if total > max_bytes:
                raise InputError(self.label, found, expected, "leave it out")
        return b"".join(pieces)

    def _raw(self, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
        pieces = member_pieces(self.path, self.members, self.note) if self.members else pieces_of(self.path)
        share = self.members[-1].packed_bytes / max(1, self.members[-1].size_bytes) if self.members else 1.0
        reported, seen = 0, 0
        try:
            for piece in pieces:
                yield piece
                seen += len(piece)
                if progress is not None:
                    progress(int(seen * share) - reported)
                    reported = int(seen * share)
        except OSError as error:
            raise InputError(
                self.label,
                f"a read error ({error.strerror or error})",
                "a readable file",
                "check the path and its permissions",
            ) from error

    def _document(self) -> Iterator[bytes]:
        """Decompressed and decoded pieces."""
        passes = itertools.count()

        def reopen() -> Iterator[bytes]:  # a second pass re-reads after damage and makes no progress
            return self._raw(self.progress if next(passes) == 0 else None)

        return to_utf8(self._peeled(reopen, 0), self.note)

    def _peeled(self, reopen: Reopen, layer: int) -> Iterator[bytes]:
        pieces = reopen()
        first = next(pieces, b"")
        while len(first) < MAGIC_BYTES and (more := next(pieces, b"")):
            first += more
        kind = compression_of(first)
        if layer == 0:
            self._compare_with_name(kind, first)
        opened = itertools.chain((first,) if first else (), pieces)
        if kind is None or layer == _MAX_LAYERS:
            return opened
        ready = [opened]

        def reopen_here() -> Iterator[bytes]:
            return ready.pop() if ready else reopen()

        return self._peeled(lambda: decompressed(kind, reopen_here, self.note), layer + 1)

    def _compare_with_name(self, found: str | None, first: bytes) -> None:
        promised = compression_named(self.name)
        if found != promised and first:
            self.note(
                "misnamed_compression", None, f"named as {promised or 'not compressed'}, is {found or 'not compressed'}"
            )


def _rest(reader: PieceReader, size: int) -> Iterator[bytes]:
    while piece := reader.read_some(size):
        yield piece
