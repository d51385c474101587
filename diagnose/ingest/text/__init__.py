"""Text logs: whatever the processes of a job printed, several kinds of lines in one file.

A line parser is a module of this package whose name has no underscore in front. It offers

    MARK: str
        RE2 pattern: the lines it wants. A file whose head holds such a line is a text log, and only such lines reach
        the parser, so name what its records and their continuations have in common, and nothing that prose has.
    BULK: str (optional)
        Text that marks lines which are this parser's alone and may be most of a file: no other parser is asked.
    class Reader:
        def feed(self, lines: Lines) -> int
            Matching lines of one block, in file order (`Lines.matching` and `.holding` select in bulk, `.rows()`
            gives (number, text) for few of them; `rank_of(text)` a launcher's global rank). State lives in the
            reader: there is one per document. Returns how many records it knew.
        def tables(self, path: str) -> Tables
            Rows of ingested tables after the last block; ids and `file` may stay null; `quality` and `settings` may
            be among them. Tables of the same name from several parsers are put one after the other. `files` is
            written here; a reader that knows what the file is about offers `rank`, `rank_source` and `host`.

Adding a format is one new module and its test. Colours, redrawn lines and container wrapping are gone when a parser
sees a line, launcher prefixes are not. Numbers of lines count from 1.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality, series, settings_text
from diagnose.ingest.text._lines import Lines, blocks, plain, rank_of
from diagnose.schema import INGESTED, Tables

__all__ = ["Lines", "parsers", "rank_of", "read", "sniff"]

SAMPLE_LINES = 256
"""Of a block, by which its main kind of line is guessed: only speed depends on it."""
_JSON = re.compile(rb'\s*(?:\{(?!"log"|\')|\[\s*[\[{"\]])')
_LOG_NAME = re.compile(
    r"\.(?:log|out|err|stdout|stderr)(?:[.\-_]?\d+)*(?:\.\w{1,4})?$"
    r"|nccl.?debug|^slurm-\d+|^(?:\w*_)?logs?\b.*\.txt$"
)


class LineReader(Protocol):
    """State of one line parser over one document."""

    def feed(self, lines: Lines) -> int:
        """Read matching lines of a block; how many records were known."""

    def tables(self, path: str) -> Tables:
        """Rows after the last block."""


class LineParser(Protocol):
    """What a module of this package offers."""

    MARK: str

    def Reader(self) -> LineReader:  # noqa: N802  a class
        """A reader for one document."""


@cache
def parsers() -> dict[str, LineParser]:
    """Every line parser by module name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {name: cast(LineParser, importlib.import_module(f"{__name__}.{name}")) for name in names}


def sniff(head: bytes, name: str) -> bool:
    """Text in which some parser finds lines, or a file named like a log that is nothing else."""
    if b"\0" in head or not head.strip() or _JSON.match(head):
        return False
    marks = _either(parser.MARK for parser in parsers().values())
    lines = pa.array(plain(head).decode("utf-8", "replace").splitlines(), pa.string())
    if pc.any(pc.match_substring_regex(lines, marks)).as_py():  # RE2 is twenty times faster here than re
        return True
    return bool(_LOG_NAME.search(name.lower())) and not (series.sniff(head, name) or settings_text.sniff(head, name))


def read(source: Source, options: Options) -> Tables:
    """What all parsers found. InputError where no line is of a kind that any of them knows."""
    known = parsers()
    readers = {name: parser.Reader() for name, parser in known.items()}
    bulk = {name: str(mark) for name, parser in known.items() if (mark := getattr(parser, "BULK", None))}
    records = 0
    for lines in blocks(source):
        rest = lines
        for name, mark in bulk.items():
            if rest.count(mark.encode()):
                mine = pc.match_substring(rest.text, mark)
                own, rest = rest.take(mine), rest.take(pc.invert(mine))
                records += readers[name].feed(own)
        for name, own in _shared_out(rest, {name: parser.MARK for name, parser in known.items()}):
            records += readers[name].feed(own)
    if not records:
        raise InputError(
            source.label,
            "a text without any line that this version knows",
            "NCCL, PyTorch or training log lines",
            "give the log of the ranks, with NCCL_DEBUG=INFO for links",
        )
    found: dict[str, list[pa.Table]] = {}
    about: dict[str, Any] = {}
    for reader in readers.values():
        for table, rows in reader.tables(source.label).items():
            found.setdefault(table, []).append(rows)
        about |= {key: value for key in ("rank", "rank_source", "host") if (value := getattr(reader, key, None))}
    tables = {name: pa.concat_tables(rows).unify_dictionaries() for name, rows in found.items()}
    tables["files"] = _files(source, records, about)
    tables.setdefault("settings", INGESTED["settings"].empty())
    tables.setdefault("quality", quality([]))
    return tables


def _shared_out(lines: Lines, marks: dict[str, str]) -> Iterator[tuple[str, Lines]]:
    """Each parser with the lines it wants; none without lines.

    A pattern that nothing matches is a pass over the whole block. So the parser to which most lines seem to belong is
    asked alone, and all others together: what they want is little, and only that is sorted further.
    """
    if not len(lines):
        return
    sample = lines.take(np.arange(len(lines)) < SAMPLE_LINES)
    wanted = {name: len(sample.matching(mark)) for name, mark in marks.items()}
    most = max(wanted, key=lambda name: wanted[name])
    if 2 * wanted[most] < len(sample):
        lines = lines.matching(_either(marks.values()))
    others = lines.matching(_either(mark for name, mark in marks.items() if name != most))
    for name, mark in marks.items():
        own = (lines if name == most else others).matching(mark)
        if len(own):
            yield name, own


def _either(marks: Iterable[str]) -> str:
    return "|".join(f"(?:{mark})" for mark in marks)


def _files(source: Source, records: int, about: dict[str, Any]) -> pa.Table:
    row = {
        "file": 0,
        "path": source.label,
        "kind": "text",
        "events_count": records,
        "status": "ok",
        "detail": "",
        **about,
    }
    return INGESTED["files"].build({name: [value] for name, value in row.items()})


def count_of(found: pa.Array | pa.ChunkedArray) -> int:
    """Sum of an integer column, 0 where empty."""
    return int(pc.sum(found).as_py() or 0)
