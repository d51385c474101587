"""Dumps of PyTorch's flight recorder: the last collective calls of one rank, pickled or as JSON, torch 2.2 to 2.13.

Fills `calls` (what was enqueued, and how far the watchdog saw it get), `members` (the rank's process groups) and
`enqueued` (the last call of every group). Times are when the host enqueued a call, not when it ran: `started` is
seen only with timing on, so a `scheduled` call may well be on the GPU. gloo never updates its states, so they are
unknown there. A dump says nothing about whether it was written because of a hang.

Which rank wrote a dump: the only rank that all its process groups share, else the number that ends the file's name
(`nccl_trace_rank_3`, `_dump_3`, `node-a_3`), where it is a member. `pg_status` numbers groups by a counter of the
process, `pg_config` by name; entries join the two, else their order where both are complete.
Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, FlightRecorderDetail.hpp, `version_val` none to 2.10.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, _pickle, _signs, quality
from diagnose.ingest._ranks import rank_in_name
from diagnose.ingest.kineto._calls import OP, bytes_of, dtype_of
from diagnose.schema import INGESTED, Tables

_PICKLE = _signs.pickle(b"pg_config", b"profiling_name", b"collective_seq_id", b"nccl_comm_state")
_JSON = _signs.json(
    r'"(pg_config|collective_seq_id|pg_status|profiling_name)"\s*:', without=r'"(traceEvents|ph|distributedInfo)"'
)
_MAX_JSON_BYTES = 1 << 30
_LAST_NUMBER = re.compile(r"(?:^|\D)(\d{1,6})(?:\.(?:json|pkl|pickle|pt|bin|dump|gz|zst|xz))*$", re.IGNORECASE)
_PEERS = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")
_DEFAULT = "default_pg"
_EXPECTED = "a flight recorder dump"


def sniff(head: bytes, name: str) -> bool:
    """A pickle or JSON with the keys of a dump."""
    return _PICKLE(head, name) or _JSON(head, name)


def read(source: Source, options: Options) -> Tables:
    """Tables of one dump. InputError where it is damaged or no dump."""
    document = _document(source)
    groups, notes = _groups(document, source.label)
    entries = _entries(document, source.label)
    rank, how = _rank(source, groups, notes)
    calls = [_call(entry, groups) for entry in sorted(entries, key=lambda e: _whole(e.get("record_id")) or 0)]
    times = [call["ts_ns"] for call in calls if call["ts_ns"]]
    world = next((g for g in groups.values() if g["description"] == _DEFAULT), None)
    files = {
        "file": [0],
        "path": [source.label],
        "kind": ["flight_recorder"],
        "rank": [rank],
        "rank_source": [how],
        "backend": [next((b for b in map(_backend, entries) if b), None)],
        "world_size": [world["size"] if world else None],
        "start_ns": [min(times, default=None)],
        "end_ns": [max(times, default=None)],
        "events_count": [len(calls)],
        "status": ["ok"],
        "detail": [""],
    }
    return {
        "files": INGESTED["files"].build(files),
        "calls": _table("calls", calls),
        "members": _table("members", list(groups.values())),
        "enqueued": _table("enqueued", _status(document, entries, groups)),
        "settings": _table("settings", _settings(document, source.label)),
        "quality": quality([{"path": source.label, "count": 1, **note} for note in notes]),
    }


def _table(name: str, rows: list[dict[str, Any]]) -> Any:
    schema = INGESTED[name]
    return schema.of_rows(rows)


def _document(source: Source) -> dict[str, Any]:
    """The dump as a dict of the newest layout's keys."""
    if source.head(1)[:1] == b"\x80":
        found = _pickle.read(source)
    else:
        pieces, total = [], 0
        for piece in source.chunks():
            pieces.append(piece)
            total += len(piece)
            if total > _MAX_JSON_BYTES:
                raise InputError(source.label, "more than 1 GiB of JSON", _EXPECTED, "leave it out")
        try:
            found = json.loads(b"".join(pieces))
        except (ValueError, RecursionError) as error:
            damage = f"JSON that ends early or is damaged ({error})"
            raise InputError(source.label, damage, _EXPECTED, "copy it again") from None
    if isinstance(found, list):  # torch 2.2
        found = {"entries": found}
    if not isinstance(found, dict):
        raise InputError(source.label, f"a {type(found).__name__}", _EXPECTED, "leave it out")
    return found


def _entries(document: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    entries = document.get("entries") or []
    if not isinstance(entries, (list, tuple)) or not all(isinstance(e, dict) for e in entries):
        raise InputError(path, "entries that are no records", _EXPECTED, "leave it out")
    return list(entries)


def _groups(document: Mapping[str, Any], path: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `members` by group name. gloo writes one nameless group without ranks, which is no group."""
    config = document.get("pg_config")
    groups: dict[str, dict[str, Any]] = {}
    notes = []
    for key, value in config.items() if isinstance(config, dict) else ():
        known = value if isinstance(value, dict) else {"ranks": value}
        name, ranks = str(known.get("name", key)), _ranks(known.get("ranks"))
        if ranks is None:
            notes.append({"problem": "unknown_members", "detail": f"group {name!r} of the dump lists no ranks"})
        if name:
            description = known.get("desc")
            groups[name] = {
                "group": name,
                "description": str(description) if description is not None else None,
                "size": len(ranks) if ranks else None,
                "ranks": ranks,
                "source": "flight_recorder",
            }
    return groups, notes


def _ranks(value: Any) -> list[int] | None:
    """Ranks from a list or its text (`"[0, 2]"`); None where there are none or the text was cut."""
    if isinstance(value, str):
        value = [] if "..." in value else re.findall(r"\d+", value)
    found = [_whole(v) for v in value] if isinstance(value, (list, tuple)) else []
    return [v for v in found if v is not None] if found and None not in found else None


def _rank(
    source: Source, groups: Mapping[str, dict[str, Any]], notes: list[dict[str, Any]]
) -> tuple[int | None, str | None]:
    """The rank that wrote the dump, and how it is known."""
    members = [set(g["ranks"]) for g in groups.values() if g["ranks"]]
    shared = set.intersection(*members) if members else set()
    named, last = rank_in_name(source.name), _LAST_NUMBER.search(source.name)
    if named is None and last:
        named = int(last[1])
    if len(shared) == 1:
        (only,) = shared
        if named not in (None, only):
            said = f"only rank {only} is in all groups of the dump, its name says {named}; {only} is used"
            notes.append({"problem": "rank_conflict", "rank": only, "detail": said})
        return only, "process_group"
    if named is None:
        return None, None
    if shared and named not in shared:
        said = f"the file name says rank {named}, which is in none of its groups; not used"
        notes.append({"problem": "rank_conflict", "detail": said})
        return None, None
    notes.append({"problem": "rank_inferred", "rank": named, "detail": f"rank {named} from the file name"})
    return named, "file_name"


def _call(entry: Mapping[str, Any], groups: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A row of `calls`."""
    name = str(entry.get("profiling_name") or "")
    spoken = name.partition(":")[2] or name
    pair = _PEERS.match(spoken)
    group = groups.get(_group(entry) or "")
    ranks = group["ranks"] if group else None
    point = bool(entry.get("is_p2p")) or pair is not None
    op = pair[1] if pair else "p2p" if point else OP.get(spoken.lower(), spoken or "unknown")
    dtype, counts = _shapes(entry)
    size = bytes_of(dtype) if dtype else None
    counted = counts["out" if op in ("all_gather", "recv", "scatter") else "in"]
    state = entry.get("state")
    duration = entry.get("duration_ms")
    return {
        "group": _group(entry),
        "group_size": group["size"] if group else None,
        "seq": None if point else _whole(entry.get("collective_seq_id", entry.get("seq_id"))),
        "op": op,
        "size_bytes": size * counted if size and counted is not None and op != "barrier" else None,
        "dtype": dtype,
        "in_count": counts["in"],
        "out_count": counts["out"],
        "peer": ranks[int(pair[3])] if pair and ranks and int(pair[3]) < len(ranks) else None,
        "ts_ns": _created_ns(entry),
        "dur_ns": round(duration * 1e6) if isinstance(duration, (int, float)) and duration > 0 else None,
        "state": str(state) if state and _backend(entry) != "gloo" else None,
        "source": "flight_recorder",
    }


def _group(entry: Mapping[str, Any]) -> str | None:
    """Group name: the name that all ranks share, or the process's own counter where torch wrote no names."""
    named = entry.get("process_group")
    if isinstance(named, (list, tuple)) and named:
        return str(named[0])
    return str(entry["pg_id"]) if "pg_id" in entry else None


def _backend(entry: Mapping[str, Any]) -> str | None:
    return str(entry.get("profiling_name") or "").partition(":")[0] or None


def _shapes(entry: Mapping[str, Any]) -> tuple[str | None, dict[str, int | None]]:
    """Element type, where all tensors share one, and elements in and out."""
    types = {str(t) for way in ("input_dtypes", "output_dtypes") for t in entry.get(way) or ()}
    counts: dict[str, int | None] = {}
    for way, key in (("in", "input_sizes"), ("out", "output_sizes")):
        sizes = entry.get(key)
        counts[way] = sum(map(_product, sizes)) if isinstance(sizes, (list, tuple)) else None
    return (dtype_of(types.pop()) if len(types) == 1 else None), counts


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes if isinstance(sizes, (list, tuple)) else (sizes,):
        result *= _whole(size) or 0
    return result


def _created_ns(entry: Mapping[str, Any]) -> int | None:
    if (ns := _whole(entry.get("time_created_ns"))) is not None:
        return ns or None
    us = _whole(entry.get("time_created_us"))
    return us * 1000 if us else None


def _status(
    document: Mapping[str, Any], entries: list[dict[str, Any]], groups: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of `enqueued`: `pg_status`, under the names of the groups."""
    status = document.get("pg_status")
    if not isinstance(status, dict) or {_backend(e) for e in entries} == {"gloo"}:
        return []
    joined: dict[str, str | None] = {str(e.get("pg_id")): _group(e) for e in entries}
    ids, names = sorted(map(str, status), key=_order), sorted(groups, key=_order)
    if len(ids) == len(names) and all(n.isdecimal() for n in names):
        in_order: dict[str, str | None] = dict(zip(ids, names, strict=True))
        if all(in_order.get(i, name) == name for i, name in joined.items()):
            joined = in_order | joined
    rows = []
    for key, last in status.items():
        name = joined.get(str(key))
        if name is None or not isinstance(last, dict):
            continue
        values = {w: _whole(last.get(f"last_{w}_collective")) for w in ("enqueued", "started", "completed")}
        rows.append(
            {
                "group": name,
                "enqueued_seq": _at_least_0(values["enqueued"]),
                "started_seq": values["started"] if (values["started"] or -1) >= 0 else None,
                "completed_seq": _at_least_0(values["completed"]),
            }
        )
    return rows


def _order(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() else (1 << 62, text)


def _at_least_0(value: int | None) -> int | None:
    return None if value is None else max(0, value)


def _whole(value: Any) -> int | None:
    """A whole number, however written (the JSON dump writes text)."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value.strip()) else None


def _settings(document: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    version = document.get("comm_lib_version") or document.get("nccl_version")
    return [{"key": "distributed.nccl_version", "value": str(version), "source": path}] if version else []
