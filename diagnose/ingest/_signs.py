"""How a file's kind shows in its first bytes: small tests to combine, one per way a format gives itself away.

A test sees the head of the decompressed document and its lower-case name. Names decide nothing by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Test = Callable[[bytes, str], bool]
_JSON = re.compile(rb'\s*(\{|\[\s*[\[{"\]])')  # a log line may begin with a bracket, too


def starts(*magics: bytes) -> Test:
    """Begins with one of the magics."""
    return lambda head, name: head.startswith(magics)


def binary(*marks: bytes, endings: tuple[str, ...] = ()) -> Test:
    """Not text, and holding one of the marks or named so."""

    def test(head: bytes, name: str) -> bool:
        return b"\0" in head[:4096] and (any(m in head for m in marks) or name.endswith(endings or ("\0",)))

    return test


def json(*patterns: str, without: str = "", opening: str = "{[") -> Test:
    """JSON in whose head all patterns stand."""
    wanted = [re.compile(p.encode()) for p in patterns]

    def test(head: bytes, name: str) -> bool:
        start = head.lstrip()[:1]
        if not start or start not in opening.encode() or (without and re.search(without.encode(), head)):
            return False
        return all(p.search(head) for p in wanted)

    return test


def text(pattern: str) -> Test:
    """Text, not JSON, with the pattern in it (`^` at any line)."""
    wanted = re.compile(pattern.encode(), re.MULTILINE)
    return lambda head, name: b"\0" not in head and not _JSON.match(head) and bool(wanted.search(head))


def pickle(*marks: bytes, without: tuple[bytes, ...] = ()) -> Test:
    """A Python pickle with one of the marks in it (any where none is given), and with none of `without`."""

    def test(head: bytes, name: str) -> bool:
        if not re.match(rb"\x80[\x02-\x05]", head) or any(mark in head for mark in without):
            return False
        return not marks or any(mark in head for mark in marks)

    return test


def sqlite(*tables: bytes) -> Test:
    """An SQLite database that names one of the tables; any database where none is given."""
    magic = b"SQLite format 3\0"
    return lambda head, name: head.startswith(magic) and (not tables or any(t in head for t in tables))


def is_xplane(head: bytes, name: str) -> bool:
    """XSpace protobuf: field 1 (a plane) first, with a plane's name in it."""
    planes = (b"/host:CPU", b"/device:GPU:", b"/device:TPU:", b"/host:metadata", b"/host:python-tracer", b"Task Env")
    return head[:1] == b"\x0a" and b"\0" in head and any(plane in head for plane in planes)


def is_perfetto(head: bytes, name: str) -> bool:
    """Trace protobuf: a chain of length-delimited packets, all of them field 1."""
    at, packets = 0, 0
    while at < len(head) and packets < 4:
        if head[at] != 0x0A:
            return False
        length, shift, at = 0, 0, at + 1
        while at < len(head) and shift < 35:
            byte, at = head[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length
        packets += 1
    return packets >= 2 and at >= min(len(head), 16) and any(b < 9 for b in head[:4096])
