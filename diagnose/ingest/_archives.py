"""Members of tar and zip archives as streams, without unpacking anything to disk.

A tar can itself be compressed, and can lie inside another archive; a zip must lie on its own, because its directory
is at its end. Members of an uncompressed tar are read where they lie. Those of a compressed tar are only reached by
reading what stands before them, so the open stream is parked after a member and taken up again by the next one:
reading all members in order costs one pass.
Zip bombs: everything is streamed, nothing is sized by what an archive claims.
"""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from diagnose.errors import InputError
from diagnose.ingest._compression import (
    MAGIC_BYTES,
    PIECE_BYTES,
    Note,
    PieceReader,
    compression_of,
    decompressed,
)
from diagnose.ingest._storage import open_seekable, pieces_of, shown

_TAR_MAGIC_AT = 257


class Member(NamedTuple):
    """Where one member lies in its archive."""

    name: str
    archive: str  # tar | packed_tar | zip
    offset: int  # of its data in the decompressed tar; its index in a zip's directory
    size_bytes: int
    packed_bytes: int  # what it takes on disk; estimated in a compressed tar


_parked: dict[tuple[str, tuple[Member, ...]], PieceReader] = {}


def archive_kind(path: str, members: tuple[Member, ...] = ()) -> str | None:
    """`tar`, `packed_tar` or `zip` by content; None for anything else."""
    reader = PieceReader(member_pieces(path, members, _ignore))
    head = reader.read(_TAR_MAGIC_AT + 8)
    reader.close()
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return "tar"
    if compression_of(head) is None:
        return None
    reader = PieceReader(_unpacked(path, members, _ignore))
    inner = reader.read(_TAR_MAGIC_AT + 8)
    reader.close()
    return "packed_tar" if inner[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar" else None


def list_members(path: str, kind: str, disk_bytes: int, within: tuple[Member, ...], note: Note) -> list[Member]:
    """Regular members in archive order, without hidden ones; of a damaged archive those within reach, and a note."""
    found: list[Member] = []
    if kind == "zip":
        if within:
            label = "!".join([shown(path), *(m.name for m in within)])
            raise InputError(
                label, "a zip inside another archive", "a zip of its own", "unpack the outer archive first"
            )
        return _zip_members(path)
    reader = PieceReader(_unpacked(path, within, note) if kind == "packed_tar" else member_pieces(path, within, note))
    try:
        with tarfile.open(fileobj=reader, mode="r|") as archive:  # type: ignore[call-overload]  # only read() is used
            for item in archive:
                if item.isreg() and not item.issparse() and not _is_hidden(item.name):
                    found.append(Member(item.name, kind, item.offset_data, item.size, item.size))
                archive.members.clear()  # it would keep them all
    except (tarfile.TarError, EOFError) as error:
        note("truncated", reader.position, f"the tar archive is cut or damaged ({error}) after {len(found)} members")
    finally:
        reader.close()
    share = min(1.0, disk_bytes / max(1, sum(m.size_bytes for m in found)))
    return [m._replace(packed_bytes=int(m.size_bytes * share)) for m in found]


def _zip_members(path: str) -> list[Member]:
    try:
        with open_seekable(path) as file, zipfile.ZipFile(file) as archive:
            items = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise InputError(
            shown(path), f"a damaged zip archive ({error})", "a complete zip archive", "copy the file again"
        ) from error
    return [
        Member(item.filename, "zip", index, item.file_size, item.compress_size)
        for index, item in enumerate(items)
        if not item.is_dir() and not _is_hidden(item.filename)
    ]


def member_pieces(path: str, members: tuple[Member, ...], note: Note) -> Iterator[bytes]:
    """Bytes of the member that `members` leads to (outermost archive first); of the file itself if empty."""
    if not members:
        return pieces_of(path)
    *outer, member = members
    within = tuple(outer)
    if member.archive == "zip":
        return _zip_pieces(path, member, note)
    if member.archive == "tar" and not within:
        return _checked(pieces_of(path, member.offset, member.size_bytes), member, note)
    return _forward_pieces(path, within, member, note)


def _forward_pieces(path: str, within: tuple[Member, ...], member: Member, note: Note) -> Iterator[bytes]:
    key = (path, within)
    reader = _parked.pop(key, None)
    if reader is None or reader.position > member.offset:
        packed = member.archive == "packed_tar"
        reader = PieceReader(_unpacked(path, within, note) if packed else member_pieces(path, within, note))
    reader.skip(member.offset - reader.position)
    left = member.size_bytes
    while left and (piece := reader.read_some(left)):
        left -= len(piece)
        yield piece
    if left:
        note("truncated", member.size_bytes - left, "the archive ends inside this member")
        reader.close()
        return
    _parked.clear()  # one open stream at a time
    _parked[key] = reader


def _unpacked(path: str, within: tuple[Member, ...], note: Note) -> Iterator[bytes]:
    def reopen() -> Iterator[bytes]:
        return member_pieces(path, within, _ignore)

    probe = PieceReader(reopen())
    kind = compression_of(probe.read(MAGIC_BYTES))
    probe.close()
    return decompressed(kind, reopen, note) if kind else reopen()


def _zip_pieces(path: str, member: Member, note: Note) -> Iterator[bytes]:
    produced = 0
    with open_seekable(path) as file, zipfile.ZipFile(file) as archive:
        try:
            with archive.open(archive.infolist()[member.offset]) as stream:
                while piece := stream.read(PIECE_BYTES):
                    produced += len(piece)
                    yield piece
        except RuntimeError as error:  # zipfile's answer to an encrypted member
            raise InputError(
                f"{shown(path)}!{member.name}", "an encrypted member", "a zip without a password", "unpack it first"
            ) from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, lzma.LZMAError) as error:
            note("damaged_compression", produced, f"the zip member is damaged ({error}) after {produced:,} bytes")


def _checked(pieces: Iterator[bytes], member: Member, note: Note) -> Iterator[bytes]:
    seen = 0
    for piece in pieces:
        seen += len(piece)
        yield piece
    if seen < member.size_bytes:
        note("truncated", seen, "the archive ends inside this member")


def _is_hidden(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return "__MACOSX" in parts or parts[-1].startswith(".")


def _ignore(problem: str, byte_offset: int | None, detail: str) -> None:
    """What a first look at an archive finds is found again by the reading itself."""
