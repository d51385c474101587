"""Which global ranks form each process group, from the header and from the arguments of collectives.

A list that the writer cut is only completed where nothing else fits: the visible part and the end are
contiguous and their span is the group's size. Otherwise the ranks stay unknown.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from diagnose.ingest.kineto._calls import split_list

Row = dict[str, object]


class Group(NamedTuple):
    """A process group as some event describes it."""

    name: str
    description: str | None
    size: int | None
    ranks: str | None  # JSON list, `"..."` where the writer cut it
    start: int | None
    stride: int | None


def from_header(config: object, world_size: int | None) -> dict[str, Row]:
    """Groups of `distributedInfo.pg_config`, whose lists are never cut."""
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            return {}
    rows: dict[str, Row] = {}
    for entry in config if isinstance(config, list) else []:
        if not isinstance(entry, dict):
            continue
        name = next((str(entry[k]) for k in ("pg_name", "uid", "pg_id") if entry.get(k) is not None), None)
        if name is None:
            continue
        size = _int(entry.get("pg_size", entry.get("group_size")))
        ranks = _ranks(split_list(json.dumps(entry.get("ranks"))))
        if ranks is None and entry.get("ranks") in ([], "[]") and size is not None and size == world_size:
            ranks = list(range(size))
        if ranks is not None and size is not None and len(ranks) != size:
            ranks = None
        rows[name] = _row(name, entry.get("pg_desc"), size or (len(ranks) if ranks else None), ranks, "distributedInfo")
    return rows


def from_event(group: Group, world_size: int | None) -> Row:
    """One group as its collectives describe it."""
    if group.start is not None and group.stride and group.size:
        ranks = [group.start + i * group.stride for i in range(group.size)]
        if _fits(ranks, group.ranks):
            return _row(group.name, group.description, group.size, ranks, "event")
    listed = _ranks(group.ranks)
    if listed is not None and group.size in (None, len(listed)):
        return _row(group.name, group.description, len(listed), listed, "event")
    assumed = _assume(group, world_size)
    source = "assumed_contiguous" if assumed else "event"
    return _row(group.name, group.description, group.size, assumed, source)


def _row(name: str, description: object, size: int | None, ranks: list[int] | None, source: str) -> Row:
    text = str(description) if description is not None else None
    return {"group": name, "description": text, "size": size, "ranks": ranks, "source": source}


def _assume(group: Group, world_size: int | None) -> list[int] | None:
    values = json.loads(group.ranks) if group.ranks else []
    cut = next((i for i, v in enumerate(values) if not isinstance(v, int)), None)
    if not cut or group.size is None:
        return None
    seen, end = values[:cut], values[cut + 1 :]
    ranks = list(range(seen[0], seen[0] + group.size))
    ends_well = end == ranks[-1:] if end else world_size is not None and ranks[-1] < world_size
    return ranks if seen == ranks[:cut] and ends_well else None


def _fits(ranks: list[int], text: str | None) -> bool:
    values = json.loads(text) if text else []
    cut = next((i for i, v in enumerate(values) if not isinstance(v, int)), len(values))
    tail = values[cut + 1 :]
    return bool(ranks[:cut] == values[:cut] and (not tail or ranks[-len(tail) :] == tail))


def _ranks(text: str | None) -> list[int] | None:
    values = json.loads(text) if text else None
    whole = isinstance(values, list) and values and all(isinstance(v, int) and v >= 0 for v in values)
    return values if whole else None


def _int(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return None
