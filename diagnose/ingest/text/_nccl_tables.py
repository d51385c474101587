"""Tables from what was collected of an NCCL log: ranks settled, texts taken apart, equal rows counted once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest import quality
from diagnose.ingest.text import _nccl_lines as like
from diagnose.ingest.text._nccl_ranks import Ranks
from diagnose.schema import INGESTED, Tables

Row = dict[str, Any]


class Collected(NamedTuple):
    """What a reader gathered, block by block."""

    path: str
    channels: list[pa.Table]
    calls: list[pa.Table]
    messages: list[pa.Table]
    comms: list[tuple[int, str, int | None, str]]


def tables_of(collected: Collected) -> tuple[Tables, Ranks, set[str]]:
    """Tables, the ranks of processes, and the hosts that printed."""
    comms = _communicators(collected.comms)
    ranks = Ranks(comms)
    messages = _messages(collected.messages, ranks)
    settings, events, tunings = _sorted_out(messages, collected.path)
    transports = _transports(collected.channels, ranks)
    calls = _calls(collected.calls, ranks, {(c["process_name"], c["address"]): c["comm"] for c in comms})
    for row in comms:
        row["rank"] = ranks.of(row["process_name"], row["device"])
    tables = {
        "communicators": _built("communicators", comms),
        "transports": transports,
        "tunings": _built("tunings", tunings),
        "log_events": _built("log_events", events),
        "settings": _built("settings", settings),
        "quality": quality(_doubts(collected.path, ranks, comms)),
    }
    if calls is not None:
        tables["calls"] = calls
    hosts = {str(row["host"]) for row in (*comms, *messages) if row["host"]}
    return tables, ranks, hosts | {str(h) for h in pc.unique(transports["host"].cast(pa.string())).to_pylist() if h}


def _built(name: str, rows: list[Row]) -> pa.Table:
    schema = INGESTED[name]
    return schema.of_rows(rows)


def _place(process: str | None) -> Row:
    host, _, pid = (process or "").rpartition(":")
    return {"host": host or None, "process": int(pid) if pid else None}


def _communicators(found: list[tuple[int, str, int | None, str]]) -> list[Row]:
    """One row per communicator of a process; an address that is used again after a destroy is another one."""
    rows: dict[tuple[str, str], Row] = {}
    done: list[Row] = []
    for number, process, device, message in found:
        match = like.COMM.search(message)
        if match is None:
            continue
        phase = match["phase"] or ""
        key = process, match["comm"]
        row = rows.get(key)
        if row is None or (row["comm_rank"], row["size"]) != (int(match["rank"]), int(match["size"])):
            row = {
                **_place(process),
                "process_name": process,
                "address": match["comm"],
                "device": int(match["device"]) if match["device"] else device,
                "comm": f"{process}:{match['comm']}",
                "comm_rank": int(match["rank"]),
                "size": int(match["size"]),
                "node_count": None,
                "state": "started" if phase == "Init START" else "complete",
                "line": number,
            }
            rows[key] = row
            done.append(row)
        row["comm"] = match["id"] or row["comm"]
        row["node_count"] = int(match["nodes"]) if match["nodes"] else row["node_count"]
        if phase.endswith("COMPLETE"):
            row["state"] = "complete"
        if phase.endswith("COMPLETE") and not phase.startswith("Init"):
            rows.pop(key, None)
    return done


def _rank_column(table: pa.Table, ranks: Ranks) -> pa.Array:
    """Global rank of each row by its process and device."""
    process, device = table["process"].combine_chunks(), table["device"].combine_chunks()
    process = process if pa.types.is_dictionary(process.type) else process.dictionary_encode()
    devices = device.fill_null(-1).to_numpy()
    codes = np.where(process.indices.is_null(), -1, process.indices.fill_null(0).to_numpy() * 4096 + devices + 1)
    distinct, back = np.unique(codes, return_inverse=True)
    names = process.dictionary.to_pylist()
    told = [ranks.of(names[c // 4096], c % 4096 - 1) if c >= 0 else None for c in distinct.tolist()]
    return pa.array(told, pa.int32()).take(pa.array(back))


def _places(table: pa.Table) -> dict[str, pa.Array]:
    """`host` and `process` of each row."""
    process = table["process"].combine_chunks().dictionary_encode()
    places = [_place(name) for name in process.dictionary.to_pylist()]
    return {
        "host": pa.array([p["host"] for p in places], pa.string()).take(process.indices),
        "process": pa.array([p["process"] for p in places], pa.int64()).take(process.indices),
    }


def _transports(parts: list[pa.Table], ranks: Ranks) -> pa.Table:
    schema = INGESTED["transports"]
    if not parts:
        return schema.empty()
    keys = ["process", "device", "channel", "from", "to", "direction", "via"]
    grouped = pa.concat_tables(parts).group_by(keys, use_threads=False).aggregate([("count", "sum"), ("line", "min")])
    via = grouped["via"].combine_chunks().dictionary_encode()
    said = [_via(text) for text in via.dictionary.to_pylist()]
    kinds = {"transport": pa.string(), "detail": pa.string(), "net_device": pa.int32(), "gpudirect": pa.bool_()}
    taken = {name: pa.array([s[name] for s in said], kind).take(via.indices) for name, kind in kinds.items()}
    numbers = {name: grouped[name].cast(pa.int32()) for name in ("channel", "from", "to")}
    direction = pc.if_else(pc.equal(grouped["direction"], ""), None, grouped["direction"])
    columns = {
        **_places(grouped),
        **taken,
        **numbers,
        "device": grouped["device"],
        "rank": _rank_column(grouped, ranks),
        "direction": direction,
        "count": grouped["count_sum"],
        "line": grouped["line_min"],
    }
    table = schema.build({k: v.combine_chunks() if isinstance(v, pa.ChunkedArray) else v for k, v in columns.items()})
    return table.sort_by("line")


def _via(text: str) -> Row:
    """What `via ...` says. GPU-direct is told for networks only."""
    match = like.VIA.match(text)
    if match is None:
        return {"transport": "other", "detail": text, "net_device": None, "gpudirect": None}
    if match["local"] or match["direct"]:
        transport = match["local"] or "SHM"
        return {
            "transport": transport,
            "detail": match["how"] or match["direct"],
            "net_device": None,
            "gpudirect": None,
        }
    return {
        "transport": match["transport"],
        "detail": match["net"],
        "net_device": int(match["device"]),
        "gpudirect": match["gdr"] is not None,
    }


def _calls(parts: list[pa.Table], ranks: Ranks, comms: dict[tuple[str, str], str]) -> pa.Table | None:
    """Rows of `calls`. The counter is hexadecimal and counts per communicator; sizes are count times element size."""
    if not parts:
        return None
    table = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    op, group = table["op"].combine_chunks(), table["group"].combine_chunks()
    ops = renamed(op, [like.OPERATIONS.get(text, text) for text in op.dictionary.to_pylist()])
    number = table["type"].combine_chunks().to_numpy().astype(np.int64)
    known = np.where(number < len(like.DTYPES), number, len(like.DTYPES))
    bytes_each = pa.array([size for _, size in like.DTYPES] + [None], pa.int64()).take(pa.array(known))
    types = pa.array(known.astype(np.int32), mask=known == len(like.DTYPES))
    count = table["elements"].combine_chunks()
    known_as = {f"{process}:{address}": comm for (process, address), comm in comms.items()}
    pairs = pa.array([text in ("send", "recv", "p2p") for text in ops.dictionary.to_pylist()]).take(ops.indices)
    return INGESTED["calls"].build(
        {
            "rank": _rank_column(table, ranks),
            "group": renamed(group, [known_as.get(name, name) for name in group.dictionary.to_pylist()]),
            "group_size": table["size"],
            "seq": pc.if_else(pairs, None, table["seq"]),
            "op": ops,
            "size_bytes": pc.multiply(count, bytes_each),
            "dtype": pa.DictionaryArray.from_arrays(types, pa.array([name for name, _ in like.DTYPES])),
            "in_count": count,
            "source": pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, np.int32), pa.array(["nccl_log"])),
        }
    )


def renamed(labels: pa.DictionaryArray, names: Sequence[str | None]) -> pa.DictionaryArray:
    """The labels under other names, of which several may be equal; null where the name is None."""
    distinct = {name: place for place, name in enumerate(dict.fromkeys(n for n in names if n is not None))}
    place = pa.array([None if name is None else distinct[name] for name in names], pa.int32())
    return pa.DictionaryArray.from_arrays(place.take(labels.indices), pa.array(list(distinct), pa.string()))


def _messages(parts: list[pa.Table], ranks: Ranks) -> list[Row]:
    """Distinct messages of each process, in order of their first line."""
    if not parts:
        return []
    keys = ["process", "device", "place", "level", "message"]
    table = pa.concat_tables(parts).group_by(keys, use_threads=False).aggregate([("count", "sum"), ("line", "min")])
    return [_message(row, ranks) for row in table.sort_by("line_min").to_pylist()]


def _message(row: Row, ranks: Ranks) -> Row:
    rank = ranks.of(row["process"], row["device"])
    return {**row, **_place(row["process"]), "rank": rank, "count": row["count_sum"], "line": row["line_min"]}


def _sorted_out(messages: list[Row], path: str) -> tuple[list[Row], list[Row], list[Row]]:
    """Settings, events and tunings among the messages."""
    values: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    events: list[Row] = []
    tunings: list[Row] = []
    for row in messages:
        text = row["message"]
        setting, version, tuning = like.SETTING.search(text), like.VERSION.search(text), like.TUNING.search(text)
        if setting:
            values[setting["key"] or setting["key2"], setting["value"] or setting["value2"] or ""].add(row["rank"])
        elif version:
            values["distributed.nccl_version", version["version"]].add(None)
            if version["cuda"]:
                values["distributed.nccl_cuda_version", version["cuda"]].add(None)
        elif tuning:
            tunings.append(_tuning(row, tuning))
        elif kind := _kind(row, text):
            events.append({**row, "kind": kind, "detail": text})
    return _settings(values, path), events, tunings


def _kind(row: Row, text: str) -> str | None:
    found = next((kind for kind, pattern in like.EVENTS if pattern.search(text)), None)
    return found or ("warning" if row["level"] == "WARN" else None)


def _settings(values: dict[tuple[str, str], set[int | None]], path: str) -> list[Row]:
    """One row per value that all share; one per rank where ranks differ."""
    per_key: dict[str, int] = defaultdict(int)
    for key, _ in values:
        per_key[key] += 1
    rows = []
    for (key, value), ranks in values.items():
        whose = [None] if per_key[key] == 1 else sorted(ranks, key=lambda r: -1 if r is None else r)
        rows += [{"key": key, "value": value, "source": path, "rank": rank} for rank in whose]
    return rows


def _tuning(row: Row, match: re.Match[str]) -> Row:
    low, high, channels = match["low"], match["high"], match["channels"]
    return {
        "rank": row["rank"],
        "op": like.OPERATIONS.get(match["op"], match["op"]) if match["op"] else None,
        "size_bytes": int(match["bytes"]),
        "algorithm": "KERNEL" if match["kernel"] else _named(match["algo"], like.ALGORITHMS),
        "protocol": match["kernel"] or _named(match["proto"], like.PROTOCOLS),
        "channels": int(channels) if channels else int(high) - int(low) + 1 if low else None,
        "count": row["count"],
    }


def _named(text: str, names: tuple[str, ...]) -> str:
    """The name behind a number (before 2.24), or the name itself."""
    return names[int(text)] if text.isdecimal() and int(text) < len(names) else text


def _doubts(path: str, ranks: Ranks, comms: list[Row]) -> list[Row]:
    """What has to be said about how ranks were told."""
    processes = {(row["process_name"], row["device"]) for row in comms}
    unknown = [p for p in processes if ranks.of(*p) is None]
    notes = []
    if unknown:
        share = f"{len(unknown)} of {len(processes)} processes"
        said = f"{share} are in no communicator that holds the whole job; their rank is unknown"
        notes.append({"problem": "log_without_ranks", "path": path, "count": len(unknown), "detail": said})
    if ranks.all():
        said = f"ranks are those of the largest communicator ({ranks.world} ranks)"
        notes.append({"problem": "rank_inferred", "path": path, "count": len(ranks.all()), "detail": said})
    return notes
