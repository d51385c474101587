"""Which documents are the same, which belong to one run, and what numbered folders say about ranks."""

from __future__ import annotations

import posixpath
from bisect import bisect, insort
from collections import Counter
from math import inf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import Tables

_CONTENT = ("ts_ns", "dur_ns", "thread", "launch_id", "name", "kind")


_EPOCH_NS = 10**18
"""Times from here on (2001) are dates; smaller ones count from the start of a machine and date nothing."""
_OTHER_DAY_NS = 86_400 * 10**9
"""Traces of one run show the same minutes and no clock is a day wrong: what begins a day apart is not one moment."""

_MANY_PER_RANK = ("text", "hook_history", "hook_ring", "hook_notes")
"""Kinds of which a rank may well leave several files in one run: its output, its errors, NCCL's own log, restarts."""


class Document:
    """One row of a part's `files`, on its way into the joined table."""

    def __init__(self, part: int, local: int, row: dict[str, Any]) -> None:
        self.part, self.local, self.row = part, local, row
        self.number: int | None = None
        self.dropped = False

    @property
    def folder(self) -> str:
        """Folder or archive that holds the document."""
        return posixpath.dirname(str(self.row["path"]).replace("!", "/").replace("\\", "/"))

    @property
    def usable(self) -> bool:
        """Whether anything was read from it."""
        return not self.dropped and self.row["status"] != "unusable"


def rank_numbered_folders(documents: list[Document]) -> list[dict[str, Any]]:
    """Ranks from folders called 0, 1, 2, ... under one parent, where time says that they are ranks.

    Numbered folders can also be steps or attempts. They are ranks only if they run from 0 without a gap, hold one
    document each, none of which knows its rank, and the recordings overlap in time: ranks run side by side, steps
    do not.
    """
    parents: dict[str, list[Document]] = {}
    for document in documents:
        if document.usable and posixpath.basename(document.folder).isdecimal():
            parents.setdefault(posixpath.dirname(document.folder), []).append(document)
    notes = []
    for family in parents.values():
        numbers = [int(posixpath.basename(d.folder)) for d in family]
        rows = [d.row for d in family]
        if len(family) < 2 or sorted(numbers) != list(range(len(family))) or any(r["rank"] is not None for r in rows):
            continue
        if any(r["start_ns"] is None or r["world_size"] not in (None, len(family)) for r in rows):
            continue
        if max(r["start_ns"] for r in rows) >= min(r["end_ns"] for r in rows):
            continue
        for row, number in zip(rows, numbers, strict=True):
            row["rank"], row["rank_source"] = number, "folder"
            notes.append(_note("rank_inferred", row, f"rank {number} from the folder"))
    return notes


def drop_duplicates(documents: list[Document], parts: list[Tables]) -> list[dict[str, Any]]:
    """Mark documents whose content stands in an earlier one of the same kind and rank."""
    notes: list[dict[str, Any]] = []
    alike: dict[tuple[Any, ...], list[Document]] = {}
    for document in documents:
        if not document.usable:
            continue
        row = document.row
        key = tuple(row[name] for name in ("kind", "rank", "world_size", "events_count", "start_ns", "end_ns"))
        for earlier in alike.setdefault(key, []):
            if _same_content(parts, earlier, document):
                document.dropped = True
                notes.append(_note("duplicate_file", row, f"same content as {earlier.row['path']}; left out"))
                break
        else:
            alike[key].append(document)
    return notes


def _same_content(parts: list[Tables], one: Document, other: Document) -> bool:
    if not one.row["events_count"] and one.row["kind"] != "flight_recorder":
        return False  # nothing to compare: two empty recordings are two recordings
    a, b = _content(parts[one.part], one), _content(parts[other.part], other)
    return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)


def _content(tables: Tables, document: Document) -> Tables:
    """What makes a document what it is: its events, else everything that was read from it."""
    names = ["events"] if "events" in tables else [n for n in tables if n not in ("files", "quality")]
    result = {}
    for name in names:
        table = tables[name]
        if "file" in table.column_names and tables["files"].num_rows > 1:
            table = table.filter(pc.equal(table["file"], document.local))
        columns = _CONTENT if name == "events" else [c for c in table.column_names if c not in ("file", "source")]
        result[name] = table.select(list(columns))
    return result


def _equal(a: pa.Table, b: pa.Table) -> bool:
    if a.num_rows != b.num_rows:
        return False
    for name in a.column_names:
        pair = pa.concat_tables([a.select([name]), b.select([name])]).unify_dictionaries()[name]
        if pa.types.is_dictionary(pair.type):
            pair = pa.chunked_array([chunk.indices for chunk in pair.chunks], pair.type.index_type)
        if not pair.slice(0, a.num_rows).equals(pair.slice(a.num_rows)):
            return False
    return True


class _Run:
    def __init__(self) -> None:
        self.world_size: int | None = None
        self.claims: dict[tuple[str, int], Document] = {}
        self.folders: set[str] = set()
        self.dates: dict[str, int] = {}
        self.begins_ns: list[int] = []  # of all documents, sorted

    def takes(self, row: dict[str, Any]) -> bool:
        same_size = None in (self.world_size, row["world_size"]) or self.world_size == row["world_size"]
        begun, date = self.dates.get(row["kind"]), _date_ns(row)
        same_day = begun is None or date is None or abs(begun - date) < _OTHER_DAY_NS
        return same_size and same_day and (row["kind"], row["rank"]) not in self.claims

    def add(self, document: Document) -> None:
        row = document.row
        self.world_size = self.world_size or row["world_size"]
        self.claims[row["kind"], row["rank"]] = document
        if (date := _date_ns(row)) is not None:
            self.dates.setdefault(row["kind"], date)
            insort(self.begins_ns, date)
        self.folders.add(document.folder)

    def apart_ns(self, row: dict[str, Any]) -> float:
        """Time between the begin of this document and the nearest of the run; infinite where either is undated."""
        date = _date_ns(row)
        if date is None:
            return inf
        at = bisect(self.begins_ns, date)
        return min((abs(date - other) for other in self.begins_ns[max(0, at - 1) : at + 1]), default=inf)


def _date_ns(row: dict[str, Any]) -> int | None:
    start: int | None = row["start_ns"]
    return start if start is not None and start >= _EPOCH_NS else None


def tell_runs_apart(documents: list[Document]) -> list[dict[str, Any]]:
    """Number the runs. A rank stands once in a run, and a run has one world size and traces of one day.

    A second document of a rank opens (or joins) another run: analysed together, the time between two recordings would
    look idle, or two jobs like one. The ranks with most documents come first, as they show how many runs there are;
    what several runs could take goes to the one of its folder, then to the one nearest in time. Where neither world
    size nor GPU explains it, a row says which two files collide.
    """
    notes: list[dict[str, Any]] = []
    runs: list[_Run] = []
    ranked = [d for d in documents if d.usable and d.row["rank"] is not None and d.row["kind"] not in _MANY_PER_RANK]
    claims = Counter((d.row["kind"], d.row["rank"]) for d in ranked)
    for document in sorted(ranked, key=lambda d: -claims[d.row["kind"], d.row["rank"]]):
        fitting = [run for run in runs if run.takes(document.row)]
        near = [run for run in fitting if document.folder in run.folders]
        if not fitting:
            runs.append(_Run())
            notes += _collisions(document, runs)
        run = min(near or fitting or runs[-1:], key=lambda run: run.apart_ns(document.row))
        run.add(document)
        document.row["run"] = runs.index(run)
    for document in documents:
        if document.row["run"] is None:
            homes = [i for i, run in enumerate(runs) if document.folder in run.folders]
            document.row["run"] = homes[0] if homes else 0
    if len(runs) > 1:
        firsts = ", ".join(f"run {i}: {next(iter(run.claims.values())).row['path']}" for i, run in enumerate(runs))
        detail = f"no joint verdict over them; {firsts}{_other_hardware(runs)}"
        notes.append({"problem": "several_runs", "count": len(runs), "detail": detail})
    return notes


def _other_hardware(runs: list[_Run]) -> str:
    """What to say where runs name different GPUs: neither speeds nor a scaling curve of them mean anything."""
    names = [sorted({d.row["gpu"] for d in run.claims.values() if d.row["gpu"]}) for run in runs]
    known = [" / ".join(gpus) for gpus in names if gpus]
    if len(set(known)) < 2:
        return ""
    named = ", ".join(f"run {i}: {' / '.join(gpus)}" for i, gpus in enumerate(names) if gpus)
    return f"; they ran on different GPUs ({named}), so their speeds do not compare and say nothing about scaling"


def _collisions(document: Document, runs: list[_Run]) -> list[dict[str, Any]]:
    row = document.row
    for run in runs:
        other = run.claims.get((row["kind"], row["rank"]))
        if other is None:
            continue
        differs = any(None not in (row[k], other.row[k]) and row[k] != other.row[k] for k in ("world_size", "gpu"))
        if not differs:
            return [
                _note("duplicate_rank", row, f"{other.row['path']} is rank {row['rank']}, too; kept as another run")
            ]
    return []


def _note(problem: str, row: dict[str, Any], detail: str) -> dict[str, Any]:
    return {"problem": problem, "path": row["path"], "rank": row["rank"], "count": 1, "detail": detail}
