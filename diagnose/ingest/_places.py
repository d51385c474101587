"""From what the user typed to documents: files, folders, globs, archives and buckets, in an order people expect.

Natural order: rank2 before rank10. Hidden files are left out of folders and archives (they hold desktop noise), and so
is a folder that holds a report of our own. One file reached in two ways is one source.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest._archives import Member, archive_kind, list_members
from diagnose.ingest._source import Source
from diagnose.ingest._storage import is_remote, remote_files, shown

_GLOB = re.compile(r"[*?\[]")
_MAX_NESTING = 2  # an archive inside an archive


def expand(paths: list[str]) -> tuple[list[Source], list[dict[str, Any]]]:
    """Sources of all paths, and a quality row for every path that gives none.

    Files, folders (recursively), globs (`**` too), tar / tar.gz / tar.zst / zip archives, `s3://` and `gs://` objects,
    prefixes and globs. Never raises for bad input: what cannot be used is a row (problem, path, count, detail).
    """
    sources: list[Source] = []
    problems: list[dict[str, Any]] = []
    seen: set[str] = set()
    for path in paths:
        try:
            found = [(file, size) for file, size in _files(os.fspath(path)) if not _met(file, seen)]
        except InputError as error:
            problems.append(_problem(error))
            continue
        for file, size in found:
            sources += _documents(file, size, (), problems)
    return sources, problems


def natural_order(path: str) -> list[tuple[int, int, str]]:
    """Sort key in which rank2 stands before rank10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", path) if part]


def _files(path: str) -> list[tuple[str, int]]:
    if is_remote(path):
        found = sorted(remote_files(path), key=lambda item: natural_order(item[0]))
        return _some(found, path, "no object", "an object or a prefix that holds some")
    place = Path(path)
    if place.is_dir():
        return _some([(f, _size(f)) for f in _walk(path)], path, "a folder without files", "traces or logs in it")
    if place.is_file():
        return [(path, _size(path))]
    if _GLOB.search(path):
        matches = sorted(glob.glob(path, recursive=True), key=natural_order)  # noqa: PTH207  as the user typed it
        found = [item for match in matches if not _is_hidden(match) for item in _within(match)]
        return _some(found, path, "no match", "a pattern that matches files")
    what = "something that is not a regular file" if os.path.lexists(path) else "nothing there"
    raise InputError(shown(path), what, "a file, folder, glob or s3:// / gs:// address", "check the path")


def _within(match: str) -> list[tuple[str, int]]:
    if Path(match).is_dir():
        return [(f, _size(f)) for f in _walk(match)]
    return [(match, _size(match))] if Path(match).is_file() else []


def _some(found: list[tuple[str, int]], path: str, what: str, expected: str) -> list[tuple[str, int]]:
    if not found:
        raise InputError(shown(path), what, expected, "check the path")
    return found


def _walk(folder: str) -> Iterator[str]:
    """Files under a folder in natural order; links are followed, but no folder is entered twice."""
    entered: set[tuple[int, int]] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        try:
            status = Path(here).stat()
        except OSError:  # a folder that may be listed but not looked into, or that has just gone
            folders.clear()
            continue
        if (status.st_dev, status.st_ino) in entered or {"report.html", "diagnosis.json"} <= set(files):
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders[:] = sorted((f for f in folders if not f.startswith(".")), key=natural_order)
        for name in sorted(files, key=natural_order):
            path = os.path.join(here, name)  # noqa: PTH118  pathlib would drop a leading ./ the user typed
            if not name.startswith(".") and Path(path).is_file():
                yield path


def _documents(
    path: str, size: int, within: tuple[Member, ...], problems: list[dict[str, Any]]
) -> Iterator[Source] | list[Source]:
    source = Source(path, within, size)
    try:
        kind = archive_kind(path, within) if len(within) < _MAX_NESTING else None
        if kind is None:
            return [source]
        members = list_members(path, kind, source.size_bytes, within, source.note)
        if kind == "zip" and _is_one_document(members):
            return [source]
        found = [
            document
            for member in sorted(members, key=lambda m: m.offset if kind == "packed_tar" else natural_order(m.name))
            for document in _documents(path, size, (*within, member), problems)
        ]
        problems += [{**row, "path": source.label} for row in source.quality]
        if not found:
            raise InputError(source.label, "an archive without files", "traces or logs in it", "check how it was made")
    except InputError as error:
        problems.append(_problem(error))
        return []
    return found


def _is_one_document(members: list[Member]) -> bool:
    """Zip files that other programs use as one document (torch.save, numpy, office): not archives of inputs."""
    names = [m.name.rsplit("/", 1)[-1] for m in members]
    return (
        "data.pkl" in names
        or "[Content_Types].xml" in names
        or (bool(names) and all(n.endswith(".npy") for n in names))
    )


def _met(path: str, seen: set[str]) -> bool:
    identity = path if is_remote(path) else os.path.realpath(path)
    known = identity in seen
    seen.add(identity)
    return known


def _is_hidden(path: str) -> bool:
    return Path(path).name.startswith(".")


def _size(path: str) -> int:
    return Path(path).stat().st_size


def _problem(error: InputError) -> dict[str, Any]:
    detail = str(error).removeprefix(f"{error.path}: ")  # whoever shows the row shows its path, too
    return {"problem": "unusable", "path": error.path, "count": 1, "byte_offset": None, "detail": detail}
