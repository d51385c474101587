"""Traces in memory for tests of the Kineto reader, given in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from diagnose import schema
from diagnose.ingest import kineto
from diagnose.schema import Tables

BASE = 1_700_000_000_000_000_000


class Pieces:
    """A source whose document is `text`."""

    def __init__(self, text: str | bytes, piece: int = 1 << 20) -> None:
        self.text = text.encode() if isinstance(text, str) else text
        self.label = self.name = "trace.json"
        self.quality: list[dict[str, Any]] = []
        self._piece = piece

    def chunks(self, size: int = 0) -> Iterator[bytes]:
        for start in range(0, len(self.text), self._piece):
            yield self.text[start : start + self._piece]


def read(text: str | bytes, piece: int = 1 << 20) -> Tables:
    """Tables of a text, checked against their schemas."""
    tables = kineto.read(Pieces(text, piece))
    for name, table in tables.items():
        schema.check(name, table, schema.INGESTED[name])
    return tables


def trace(*events: dict[str, Any], **header: Any) -> str:
    """A document with these events and a base."""
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE, **header, "traceEvents": list(events)})


def event(name: str = "aten::mm", cat: str = "cpu_op", ts: Any = 1, dur: Any = 1, **args: Any) -> dict[str, Any]:
    """A host or device event; arguments with blanks in their names go through `**`."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, "args": args}


def rows(table: pa.Table, *columns: str) -> list[Any]:
    """Values of one column, or tuples of several."""
    taken = [table[c].to_pylist() for c in columns]
    return taken[0] if len(columns) == 1 else list(zip(*taken, strict=True))


def problems(tables: Tables) -> dict[str, int]:
    """Count by problem."""
    return dict(rows(tables["quality"], "problem", "count"))
