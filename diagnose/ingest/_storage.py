"""Bytes of a path, wherever it lies: the local disk, or `s3://` and `gs://` through Arrow's own file systems.

Local paths keep the bytes the system gave (names need not be UTF-8); a remote path is anything with a scheme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagnose.errors import InputError

READ_BYTES = 1 << 20  # larger pieces leave the processor's cache before they are used
_FIRST_READ_BYTES = 64 << 10  # most readers of a first piece only look at the head
_PATIENCE_S = 5
_WITH_BUCKET = re.compile(r"^(file://|[a-z][a-z0-9+]+://[^/?]+)")
_SCHEME = re.compile(r"^[a-z][a-z0-9+]+://")


def shown(path: str) -> str:
    """A path as valid text, whatever the locale: names that are not UTF-8 get replacement characters."""
    return os.fsencode(path).decode("utf-8", "replace")


def is_remote(path: str) -> bool:
    """Whether the path names an object elsewhere."""
    return _SCHEME.match(path) is not None


def open_seekable(path: str) -> Any:
    """Binary file object with read, seek and tell. InputError if the path cannot be opened."""
    if is_remote(path):
        system, inner = file_system(path)
        try:
            return system.open_input_file(inner)
        except OSError as error:
            raise _unreachable(path, error) from error
    try:
        return Path(path).open("rb", buffering=0)
    except OSError as error:
        raise InputError(
            shown(path), f"{error.strerror or error}", "a readable file", "check the path and its permissions"
        ) from error


def pieces_of(path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
    """`size` bytes (None: all) of a file from `offset` on, in pieces of READ_BYTES at most."""
    with open_seekable(path) as file:
        if offset:
            file.seek(offset)
        left = size if size is not None else 1 << 62
        want = _FIRST_READ_BYTES
        while left and (piece := _read(file, min(want, left), path)):
            left -= len(piece)
            yield piece
            want = READ_BYTES


def _read(file: Any, count: int, path: str) -> Any:
    try:
        return file.read(count)
    except OSError as error:
        raise InputError(
            shown(path),
            f"a read error ({error.strerror or error})",
            "a readable file",
            "check the disk, or copy it again",
        ) from error


def file_system(uri: str) -> tuple[Any, str]:
    """Arrow file system of a URI and the path inside it. InputError where it cannot be reached."""
    import pyarrow as pa
    from pyarrow import fs

    if not _WITH_BUCKET.match(uri):
        raise InputError(shown(uri), "an address without a bucket", "s3://bucket/path or gs://bucket/path", "add it")
    if uri.startswith("gs://") and "?" not in uri:
        uri += f"?retry_limit_seconds={_PATIENCE_S}"  # its default is 15 minutes
    try:
        return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
    except (OSError, pa.ArrowException) as error:
        raise _unreachable(uri, error) from error


def remote_files(uri: str) -> list[tuple[str, int]]:
    """(URI, size in bytes) of an object, of everything under a prefix, or of what a glob in its path matches."""
    import fnmatch

    from pyarrow import fs

    scheme = uri.split("://", maxsplit=1)[0] + "://"
    fixed = re.split(r"[*?\[]", uri, maxsplit=1)[0]
    pattern = uri if fixed != uri else None
    system, inner = file_system(fixed.rsplit("/", 1)[0] if pattern else uri)
    try:
        info = system.get_file_info(inner)
        if info.type == fs.FileType.File:
            return [(uri, info.size)]
        found = system.get_file_info(fs.FileSelector(inner, recursive=True, allow_not_found=True))
    except OSError as error:
        raise _unreachable(uri, error) from error
    files = [(scheme + item.path, item.size) for item in found if item.type == fs.FileType.File]
    if not pattern:
        return files
    wanted = scheme + system.normalize_path(pattern.split("://", 1)[1])
    return [(path, size) for path, size in files if fnmatch.fnmatchcase(path, wanted)]


def _unreachable(path: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:200]
    return InputError(
        shown(path), f"storage that does not answer ({reason})", "a reachable bucket or object",
        "check the address, credentials and region, or copy the files here first",
    )  # fmt: skip
