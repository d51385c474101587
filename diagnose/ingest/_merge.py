"""Join what was read from each source into one set of tables.

Ids become global, every document gets a rank (or a distinct negative number where no evidence gives one), the same
content given twice is dropped once, and documents that cannot belong to one run are told apart: another world size,
or a second claim of the same rank. Nothing that need not change is copied: a constant column is one small buffer
used again and again, a single part keeps its own arrays.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest._documents import Document, drop_duplicates, rank_numbered_folders, tell_runs_apart
from diagnose.ingest._hook_overlap import absent, begun_late, without_repeats
from diagnose.schema import INGESTED, Tables

_CONSTANT_ROWS = 1 << 20


def merge(parts: list[Tables]) -> Tables:
    """One set of tables from the parts that `ingest.read` gave, in their order.

    Every table is of its schema in `diagnose.schema.INGESTED`, with one dictionary per label column. `files` and
    `quality` always exist; another table exists if any part has it.
    """
    parts = without_repeats(parts)
    documents = [
        Document(part, row["file"], row) for part, tables in enumerate(parts) for row in tables["files"].to_pylist()
    ]
    notes = rank_numbered_folders(documents)
    notes += drop_duplicates(documents, parts)
    notes += _number_unknown(documents, parts)
    notes += tell_runs_apart(documents)
    notes += absent(document.row for document in documents if document.usable)
    notes += begun_late(parts)
    kept = [d for d in documents if not d.dropped]
    for number, document in enumerate(kept):
        document.number = number
    names = [name for name in INGESTED if any(name in tables for tables in parts)]
    joined: dict[str, list[pa.Table]] = {name: [] for name in names}
    events_count = 0
    for part, tables in enumerate(parts):
        own = [d for d in documents if d.part == part]
        relabelled = _relabel(tables, own, events_count)
        events_count += tables["events"].num_rows if "events" in tables else 0
        for name, table in relabelled.items():
            joined[name].append(table)
    files = INGESTED["files"]
    rows = [{**d.row, "file": d.number} for d in kept]
    result = {
        name: pa.concat_tables(tables).unify_dictionaries() if tables else INGESTED[name].empty()
        for name, tables in joined.items()
    }
    result["files"] = files.of_rows(rows)
    schema = INGESTED["quality"]
    extra = schema.of_rows(notes)
    result["quality"] = pa.concat_tables([result.get("quality", schema.empty()), extra]).unify_dictionaries()
    return result


def _number_unknown(documents: list[Document], parts: list[Tables]) -> list[dict[str, Any]]:
    """Distinct negative ranks for documents about one rank that do not say which."""
    notes, following = [], -1
    for document in documents:
        row = document.row
        about_a_rank = any(name in parts[document.part] for name in ("events", "calls", "allocations", "segments"))
        about_a_rank |= _needs_a_rank(parts[document.part].get("microbatches"))
        if document.dropped or row["rank"] is not None or row["status"] == "unusable" or not about_a_rank:
            continue
        row["rank"], row["rank_source"] = following, "unknown"
        following -= 1
        detail = "neither its content nor its name gives a rank"
        notes.append(
            {"problem": "rank_unknown", "path": row["path"], "rank": row["rank"], "count": 1, "detail": detail}
        )
    return notes


def _needs_a_rank(table: pa.Table | None) -> bool:
    """Whether a table has rows without a rank (or no rows, as a recording of nothing)."""
    if table is None:
        return False
    given = table["rank"]
    return not len(given) or bool(given.null_count) or pc.min(given).as_py() < 0


def _relabel(tables: Tables, own: list[Document], event_offset: int) -> Tables:
    """A part with global ids and settled ranks, without the rows of dropped documents."""
    dropped = [d for d in own if d.dropped]
    if len(dropped) == len(own):
        return {}
    result = {}
    gone = _events_of(tables, dropped) if dropped else None
    for name, table in tables.items():
        if name == "files":
            continue
        kept = table if gone is None else _without(table, dropped, gone)
        for at, column in enumerate(kept.column_names):
            if column == "rank":
                kept = kept.set_column(at, kept.schema.field(at), _ranks(kept, own))
        for at, column in enumerate(kept.column_names):
            if column == "file":
                kept = kept.set_column(at, kept.schema.field(at), _file_numbers(kept, own))
            if column == "event_id" and event_offset:
                kept = kept.set_column(at, kept.schema.field(at), pc.add(kept[column], event_offset))
        result[name] = kept
    return result


def _ranks(table: pa.Table, own: list[Document]) -> pa.ChunkedArray:
    """Ranks of a part's table: nulls and placeholders take the rank of their document."""
    given = table["rank"]
    by_file = pa.array([d.row["rank"] for d in own], pa.int32())
    if len(own) == 1 and given.null_count == len(given):
        return constant(own[0].row["rank"], len(given), pa.int32())
    lowest = pc.min(given).as_py()
    if lowest is not None and lowest < 0:
        placeholder = pc.less(given, 0)
        given = pc.if_else(placeholder, _by_file(by_file, pc.if_else(placeholder, pc.subtract(-1, given), None)), given)
    if given.null_count and len(own) == 1:
        given = given.fill_null(by_file[0]) if by_file[0].is_valid else given
    elif given.null_count and "file" in table.column_names:
        given = pc.coalesce(given, _by_file(by_file, table["file"]))
    return given


def _by_file(values: pa.Array, file: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([values.take(chunk) for chunk in file.chunks], values.type)


def _file_numbers(table: pa.Table, own: list[Document]) -> pa.ChunkedArray:
    if len(own) == 1:
        return constant(own[0].number, table.num_rows, pa.int32())
    return _by_file(pa.array([d.number for d in own], pa.int32()), table["file"])


def constant(value: int | None, length: int, kind: pa.DataType) -> pa.ChunkedArray:
    """`length` times the same value, on one small buffer."""
    block = pa.repeat(pa.scalar(value, kind), min(length, _CONSTANT_ROWS))
    whole, rest = divmod(length, _CONSTANT_ROWS)
    return pa.chunked_array([block] * whole + ([block.slice(0, rest)] if rest else []), kind)


def _events_of(tables: Tables, dropped: list[Document]) -> pa.Array:
    """Ids of the events of dropped documents."""
    if "events" not in tables:
        return pa.array([], pa.int64())
    events = tables["events"]
    mask = pc.is_in(events["file"], pa.array([d.local for d in dropped], pa.int32()))
    return events["event_id"].filter(mask).combine_chunks()


def _without(table: pa.Table, dropped: list[Document], gone: pa.Array) -> pa.Table:
    if "file" in table.column_names:
        files = pa.array([d.local for d in dropped], pa.int32())
        return table.filter(pc.invert(pc.is_in(table["file"], files)))
    if "event_id" in table.column_names:
        return table.filter(pc.invert(pc.is_in(table["event_id"], gone)))
    return table
