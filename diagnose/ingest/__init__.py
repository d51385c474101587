"""Read whatever a job left behind into the tables of `diagnose.schema`.

`expand` finds the documents, `read` turns one into tables whose file and event ids count from 0 (so it maps over
processes), `merge` joins the parts: ids become global, ranks are settled, duplicates dropped, runs told apart.

An ingester is a module or package of this folder with `sniff(head, name) -> bool` and `read(source, options)`, which
gives tables: always `files` (a row per document) and `quality`; InputError where nothing is usable. It sets
`files.rank` and `files.rank_source` only where the content gives them; `file` and `rank` of its other tables may stay
null where the source holds one document. Where it holds several, a table without a `file` column writes the
placeholder `-1 - file` as the rank of a document that does not know its own. `source.quality` is added by `read`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest._merge import merge
from diagnose.ingest._places import expand
from diagnose.ingest._ranks import rank_in_folders, rank_in_name
from diagnose.ingest._source import Source
from diagnose.schema import INGESTED, Tables

_LAST = ("series", "settings_text")
_LOSSES = ("damaged_compression", "truncated")
_OF_A_RANK = ("events", "calls", "allocations", "segments", "series", "router_calls", "microbatches")
"""A document with one of these is about one rank."""

__all__ = ["Ingester", "Options", "Source", "expand", "ingesters", "merge", "of_problem", "read", "unusable"]


class Options(NamedTuple):
    """What the user asked for: global ranks; None is all."""

    ranks: frozenset[int] | None = None


class Ingester(Protocol):
    """What a module of this folder offers."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Whether this ingester reads a document that begins with `head`."""

    def read(self, source: Source, options: Options) -> Tables:
        """Tables of the document."""


@cache
def ingesters() -> dict[str, Ingester]:
    """Every ingester by module name, in the order they are asked.

    Alphabetical, so files of other tools (`foreign`) are refused first; formats without marks of their own come last.
    """
    names = sorted(
        (m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")), key=lambda n: (n in _LAST, n)
    )
    return {name: cast(Ingester, importlib.import_module(f"{__name__}.{name}")) for name in names}


def read(source: Source, options: Options = Options()) -> Tables:  # noqa: B008  an immutable tuple
    """Tables of one source by the ingester whose sniff says yes; ids are local to the source.

    Never raises for bad input: a source that yields nothing is one `files` row with status `unusable` and a reason.
    """
    try:
        head = source.head()
        chosen = next((i for i in ingesters().values() if i.sniff(head, source.name)), None)
        if chosen is None:
            tables = unusable(source.label, _unknown(head), "unknown_format" if head.strip() else "unusable")
        else:
            tables = chosen.read(source, options)
    except InputError as error:
        tables = unusable(source.label, f"found {error.found}; expected {error.expected}; {error.do}")
    except RecursionError:  # whichever ingester looked: JSON parsers go as deep as the text does
        tables = unusable(source.label, "found brackets nested thousands deep; expected a trace or table; leave it out")
    return _left_out(_with_ranks(tables, source), options)


def unusable(path: str, detail: str, problem: str = "unusable", kind: str = "unknown") -> Tables:
    """Tables of an input that gives nothing: one `files` row that says why, and its `quality` row."""
    return {
        "files": INGESTED["files"].build(
            {
                "file": [0],
                "path": [path],
                "kind": [kind],
                "events_count": [0],
                "status": ["unusable"],
                "detail": [detail],
            }
        ),
        "quality": quality([{"problem": problem, "path": path, "count": 1, "detail": detail}]),
    }


def of_problem(row: dict[str, Any]) -> Tables:
    """Tables of a problem that `expand` met: a path that gives nothing, or a doubt about an archive."""
    if row["problem"] == "unusable":
        return unusable(row["path"], row["detail"])
    return {"files": INGESTED["files"].empty(), "quality": quality([row])}


def quality(rows: list[dict[str, Any]]) -> pa.Table:
    """Quality table of rows given as dicts; absent keys are null."""
    schema = INGESTED["quality"]
    if not rows:
        return schema.empty()
    return schema.of_rows(rows)


def _unknown(head: bytes) -> str:
    if not head.strip():
        return (
            "found an empty file; expected a trace or table; check why nothing was written (full disk, no active step)"
        )
    start = head[:60].decode("utf-8", "replace")
    seen = "".join(c if c.isprintable() else "." for c in " ".join(start.split()))[:40]
    return (
        f"found a format this version does not know (it starts with {seen!r}); "
        "expected a PyTorch profiler trace, numbers per step, KEY=VALUE settings or job.toml; leave the file out"
    )


def _with_ranks(tables: Tables, source: Source) -> Tables:
    """Ranks from names where the content gives none, and the quality rows that reading and naming left."""
    rows = tables["files"].to_pylist()
    before = [dict(row) for row in rows]
    notes = [{**row, "path": source.label} for row in source.quality]
    if len(rows) == 1 and rows[0]["status"] != "unusable" and any(name in tables for name in _OF_A_RANK):
        notes += _name_rank(rows[0], source)
    lost = next((note["detail"] for note in notes if note["problem"] in _LOSSES), None)
    for row in rows:
        if lost and row["status"] in ("ok", "repaired"):
            row["status"], row["detail"] = "partial", row["detail"] or lost
    result = dict(tables)
    if rows != before:
        files = INGESTED["files"]
        result["files"] = files.of_rows(rows)
    if notes:
        result["quality"] = pa.concat_tables([tables["quality"], quality(notes)]).unify_dictionaries()
    return result


def _name_rank(row: dict[str, Any], source: Source) -> list[dict[str, Any]]:
    """Set rank and rank_source of a `files` row from the names around it; what has to be said about that."""
    rank, how = rank_in_name(source.name), "file name"
    if row["rank"] is not None:
        if rank in (None, row["rank"]):
            return []
        said = f"{row['rank_source']} says rank {row['rank']}, the file name says {rank}; {row['rank']} is used"
        return [_note("rank_conflict", row, said)]
    if rank is None:
        rank, how = rank_in_folders(source.folders), "folder"
    if rank is None:
        return []
    if row["world_size"] is not None and rank >= row["world_size"]:
        said = f"the {how} says rank {rank}, but the job has {row['world_size']} ranks; not used"
        return [_note("rank_conflict", row, said)]
    row["rank"], row["rank_source"] = rank, how.replace(" ", "_")
    return [_note("rank_inferred", row, f"rank {rank} from the {how}")]


def _note(problem: str, row: dict[str, Any], detail: str) -> dict[str, Any]:
    return {"problem": problem, "path": row["path"], "rank": row["rank"], "count": 1, "detail": detail}


def _left_out(tables: Tables, options: Options) -> Tables:
    """Only `files`, `settings` and `quality` of a source none of whose ranks was asked for: thousands stay small."""
    ranks = tables["files"]["rank"].to_pylist()
    if options.ranks is None or not ranks or any(rank is None or rank in options.ranks for rank in ranks):
        return tables
    whole = ("files", "settings", "quality")
    return {name: table if name in whole else table.slice(0, 0) for name, table in tables.items()}
