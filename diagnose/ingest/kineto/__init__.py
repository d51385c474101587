"""torch.profiler / Kineto / Chrome traces (`*.pt.trace.json`, `.json`, `.json.gz`).

A document is an object with `traceEvents` or a bare list of events; a file can hold several. Not read here:
other profilers' own formats, and flow records (`ph` s, t, f), which repeat what correlation ids say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

from diagnose.errors import InputError
from diagnose.ingest.kineto._document import Document, Reader
from diagnose.ingest.kineto._stream import Window
from diagnose.ingest.kineto._tables import join, tables_of
from diagnose.schema import Tables

BLOCK_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20

_KEYS = re.compile(
    rb'(?<!\\)"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|displayTimeUnit)"\s*:'
)
_EVENT = re.compile(rb'^\s*\[\s*\{(?:[^{}]|\{[^{}]*\})*?"ph"\s*:\s*"', re.DOTALL)


class Source(Protocol):
    """What is read of a source of documents."""

    label: str
    quality: list[dict[str, Any]]

    def chunks(self, size: int = ...) -> Iterator[bytes]:
        """The document in pieces of UTF-8 text."""
        ...


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning of a file looks like a trace: an object with a trace's keys, or a list of events."""
    text = head.lstrip()
    if text[:1] == b"{":
        return _KEYS.search(text) is not None
    return text[:1] == b"[" and _EVENT.match(text[:65536]) is not None


def read(source: Source, options: object = None) -> Tables:
    """All tables of one file; ids are local to it. InputError where it holds no trace at all.

    Writes files, events, op_args, device_args, threads, calls, members, allocations, settings and quality,
    each possibly empty; `rank` is only filled in `files`, `settings` and `quality`.
    """
    reader = Reader(Window(source.chunks(_PIECE_BYTES), BLOCK_BYTES))
    documents: list[Document] = []
    while (document := reader.next()) is not None:
        if document.has_events:
            documents.append(document)
        elif documents:
            documents[-1].faults.add("damaged_event", at=document.offset, detail="text behind the trace is not a trace")
    if not documents:
        raise InputError(
            source.label, "no list of trace events", "traceEvents, or a list of events", "record the trace again"
        )
    if len(documents) > 1:
        said = f"{len(documents)} traces one after the other, read as {len(documents)} files"
        documents[0].faults.add("several_documents", len(documents), documents[1].offset, said)
    for row in source.quality:  # a cut stream can end in a whole document by chance
        if row["problem"] in ("truncated", "damaged_compression"):
            documents[-1].faults.stream_is_cut = True
    return join([tables_of(document, file, source.label) for file, document in enumerate(documents)])
