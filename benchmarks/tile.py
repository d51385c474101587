"""Make a large trace from a small one: its events again and again, later in time, with ids of their own."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

_NUMBER = re.compile(rb'"(ts|correlation|External id|Ev Idx|id)":\s*(\d+)')
_TIME = re.compile(rb'"ts":\s*(\d+)')
ID_STRIDE = 10_000_000


def tile(source: Path, target: Path, size_bytes: int) -> Path:
    """Write the events of `source` (Kineto JSON, .gz or not) to `target` until it holds `size_bytes`."""
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    start = raw.index(b"[", raw.index(b'"traceEvents"')) + 1
    end = raw.rindex(b"]")
    head, events, tail = raw[:start], raw[start:end].strip(), raw[end:]
    # device times only: metadata records carry no time worth keeping
    times = [int(t) for t in _TIME.findall(events)]
    span = max(times) - min(t for t in times if t) + 1_000_000
    with target.open("wb") as out:
        out.write(head)
        for copy in range(max(1, round(size_bytes / len(events)))):
            out.write(b",\n" if copy else b"\n")
            out.write(_shifted(events, copy, span) if copy else events)
        out.write(b"\n" + tail)
    return target


def _shifted(events: bytes, copy: int, span: int) -> bytes:
    def moved(match: re.Match[bytes]) -> bytes:
        by = span * copy if match[1] == b"ts" else ID_STRIDE * copy
        value = int(match[2])
        return b'"%s": %d' % (match[1], value + by if value else value)

    return _NUMBER.sub(moved, events)
