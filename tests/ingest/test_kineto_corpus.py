"""Every real trace loads, with exactly the events that json.loads sees."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from diagnose.ingest import kineto
from tests.ingest.traces import problems, read, rows

EXPECTED = 40  # traces in the corpus, archives not counted


def text_of(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def timed(document: Any) -> Counter[tuple[str, int, int]]:
    """Name, start and duration of the timed events, without repair and without haste."""
    base = 0 if isinstance(document, list) else int(document.get("baseTimeNanoseconds", 0))
    found: Counter[tuple[str, int, int]] = Counter()
    for event in document if isinstance(document, list) else document["traceEvents"]:
        if event.get("ph") in ("X", "i"):
            start = int((Decimal(event["ts"]) * 1000).to_integral_value("ROUND_HALF_UP"))
            dur = int((Decimal(event.get("dur", 0)) * 1000).to_integral_value("ROUND_HALF_UP"))
            found[event["name"], start + (base if start < 10**18 else 0), dur] += 1
    return found


def test_every_trace(corpus: Path) -> None:
    read_count = 0
    for path in sorted(corpus.rglob("*.json*")):
        if path.stat().st_size > 2_500_000:
            continue  # the largest one has its own benchmark
        text = text_of(path)
        if not kineto.sniff(text[:65536], path.name):
            continue
        tables = read(text)
        found = Counter(rows(tables["events"], "name", "ts_ns", "dur_ns"))
        assert found == timed(json.loads(text, parse_float=Decimal)), path
        assert set(problems(tables)) <= {"missing_base", "unknown_category"}, path
        assert rows(tables["files"], "status") == ["ok"], path
        read_count += 1
    assert read_count >= EXPECTED - 8
