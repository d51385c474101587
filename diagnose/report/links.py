"""Which way NCCL's traffic goes as its log says it, what is wrong with it, and what benchmarks measured.

A log names links, not speeds; a benchmark says what links can do, not what the job did.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Block, Figure, Grid, Name, Section, Tag, Text, columns, known
from diagnose.report._figures_ranks import against_size
from diagnose.report._hang import rank_names
from diagnose.report._text import clean, name
from diagnose.units import show

ORDER = 63
MOST_ROWS = 24
MOST_POINTS = 400
_KINDS = {
    "socket_fallback": "TCP sockets between hosts",
    "gdr_disabled": "network traffic goes through host memory (no GPUDirect)",
    "p2p_disabled": "GPUs of a host exchange through host memory (no peer access)",
    "nic_unbalanced": "GPUs crowd on some network cards",
    "forced_protocol": "protocol forced by the environment",
    "forced_algorithm": "algorithm forced by the environment",
    "link_flap": "a network port went down",
    "link_lost": "the other side of a connection no longer answered",
}
_COLLECT = "Which links the job took is unknown: give a log of all ranks with NCCL_DEBUG=INFO."
_BENCHMARK = "A benchmark says what the links can do, not what the job did."
Row = dict[str, Any]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no NCCL log, no forced choice and no benchmark was read."""
    offences = [row for row in _rows(tables, "links") if row["kind"] != "not_recorded"]
    channels, comms = tables.get("transports"), _rows(tables, "communicators")
    measured = _measured(tables.get("bandwidths"))
    blocks: list[Block] = []
    if offences:
        blocks.append(_offences(offences))
    if channels is not None and channels.num_rows:
        blocks.append(_channels(channels))
    if comms:
        blocks.append(_communicators(comms))
    if measured:
        blocks += [_figure(measured), _benchmarks(measured), Text(_BENCHMARK, quiet=True)]
    if not blocks:
        return None
    return Section("transports", "Links", blocks, _lead(offences, channels, comms))


def _lead(offences: list[Row], channels: pa.Table | None, comms: list[Row]) -> str:
    said = "; ".join(dict.fromkeys(_kind(row) for row in offences))
    said = f"{said[0].upper()}{said[1:]}." if said else ""
    if channels is None or not channels.num_rows:
        return f"{said} {_COLLECT}".strip()
    return said or "The log shows no socket, missing GPUDirect or peer access, forced choice or lost link."


def _kind(row: Row) -> str:
    return _KINDS.get(row["kind"], clean(row["kind"]).replace("_", " "))


def _offences(offences: list[Row]) -> Grid:
    heads = columns("What", "Hosts", "Ranks", "Because of", "Devices", ">Concerned", "Said")
    rows = [
        [
            _kind(row),
            name(", ".join(row["hosts"]), 48),
            name(rank_names(row["ranks"]), 32),
            name(row["cause"], 80),
            name(row["devices"], 48),
            _concerned(row),
            name(row["value"], 80),
        ]
        for row in offences[:MOST_ROWS]
    ]
    more = f"{len(offences) - MOST_ROWS:,} more rows." if len(offences) > MOST_ROWS else ""
    return known(Grid("What is wrong with the links", heads, rows, more))


def _concerned(row: Row) -> str | Name:
    if row["affected_count"] is None:
        return UNKNOWN_NAME
    return f"{row['affected_count']:,}" + (f" of {row['all_count']:,}" if row["all_count"] is not None else "")


def _channels(channels: pa.Table) -> Grid:
    """Channels of each host by how they are carried."""
    keys = ["host", "transport", "detail", "gpudirect"]
    counted = channels.select([*keys, "rank", "net_device"]).group_by(keys)
    found = counted.aggregate([([], "count_all"), ("rank", "distinct"), ("net_device", "distinct")]).to_pylist()
    found.sort(key=lambda row: (str(row["host"]), -row["count_all"], str(row["transport"])))
    heads = columns("Host", "Ranks", "Carried by", "As printed", "GPUDirect", "Network devices", ">Channels")
    rows = [
        [
            name(row["host"], 40),
            name(rank_names(r for r in row["rank_distinct"] if r is not None), 40),
            name(row["transport"]),
            name(row["detail"], 40),
            _direct(row),
            name(", ".join(str(d) for d in sorted(d for d in row["net_device_distinct"] if d is not None)), 40),
            f"{row['count_all']:,}",
        ]
        for row in found[:MOST_ROWS]
    ]
    more = f"{len(found) - MOST_ROWS:,} more rows." if len(found) > MOST_ROWS else ""
    return known(Grid("Channels by host", heads, rows, more))


def _direct(row: Row) -> str:
    if row["gpudirect"] is None:
        return "unknown" if row["transport"] in ("NET", "COLLNET") else "no network"
    return "yes" if row["gpudirect"] else "no"


def _communicators(comms: list[Row]) -> Grid:
    """Communicators of one size, span and state in one row."""
    own: dict[str, list[Row]] = {}
    for row in comms:
        own.setdefault(str(row["comm"]), []).append(row)
    kinds: dict[tuple[Any, ...], list[str]] = {}
    for comm, rows in own.items():
        nodes = max((r["node_count"] for r in rows if r["node_count"] is not None), default=None)
        seen, size = len({r["comm_rank"] for r in rows}), rows[0]["size"]
        complete = sum(r["state"] == "complete" for r in rows)
        key = (size, nodes, len({r["host"] for r in rows if r["host"]}), seen, complete == len(rows))
        kinds.setdefault(key, []).append(comm)
    heads = columns(">Communicators", ">Ranks", ">Nodes", ">Hosts seen", ">Ranks seen", "Initialised", "First")
    cells = [
        [
            f"{len(names):,}",
            _count(size),
            _count(nodes),
            _count(hosts or None),
            _count(seen),
            "yes" if complete else Tag("not all: stuck there, or the log ends there", "warning"),
            name(names[0], 32),
        ]
        for (size, nodes, hosts, seen, complete), names in kinds.items()
    ]
    more = f"{len(cells) - MOST_ROWS:,} more rows." if len(cells) > MOST_ROWS else ""
    return known(Grid("Communicators", heads, cells[:MOST_ROWS], more))


def _count(value: int | None) -> str | Name:
    return UNKNOWN_NAME if value is None else f"{value:,}"


def _measured(bandwidths: pa.Table | None) -> list[Row]:
    """Middle and best bus bandwidth per source, operation, size and number of ranks."""
    if bandwidths is None or not bandwidths.num_rows:
        return []
    kept = bandwidths.filter(
        pc.and_(pc.is_valid(bandwidths["busbw_bytes_per_s"]), pc.is_valid(bandwidths["size_bytes"]))
    )
    keys = ["source", "op", "size_bytes", "group_size", "node_count"]
    plain = pa.table({c: kept[c].cast(pa.string()) if c in ("source", "op") else kept[c] for c in keys})
    plain = plain.append_column("busbw", kept["busbw_bytes_per_s"])
    found = plain.group_by(keys).aggregate([("busbw", "approximate_median"), ("busbw", "max"), ("busbw", "count")])
    rows: list[Row] = found.to_pylist()
    return sorted(rows, key=lambda r: (str(r["source"]), str(r["op"]), r["group_size"] or 0, r["size_bytes"]))


def _series(row: Row) -> str:
    ranks = f"{row['group_size']:,} ranks" if row["group_size"] is not None else "ranks unknown"
    return f"{_operation(row)}, {ranks} ({_source(row)})"


def _operation(row: Row) -> str:
    return clean(row["op"]) if row["op"] else "unknown operation"


def _source(row: Row) -> str:
    return {"nccl_tests": "nccl-tests", "nccl_inspector": "NCCL Inspector"}.get(row["source"], clean(row["source"]))


def _figure(measured: list[Row]) -> Figure:
    points = [
        (
            _series(row), row["size_bytes"], row["busbw_approximate_median"],
            f"{_series(row)}, {show('size_bytes', row['size_bytes'])}: "
            f"{show('busbw_bytes_per_s', row['busbw_approximate_median'])} of {row['busbw_count']:,} results",
        )
        for row in measured
        if row["size_bytes"] > 0 and row["busbw_approximate_median"] > 0
    ]  # fmt: skip
    alt = f"Measured bus bandwidth of {len(points):,} operations and sizes."
    note = f"The first {MOST_POINTS:,} of {len(points):,} points." if len(points) > MOST_POINTS else ""
    return Figure("Bus bandwidth that was measured", against_size(points[:MOST_POINTS], []), 340, alt, note)


def _benchmarks(measured: list[Row]) -> Grid:
    """The largest message of each measurement: there the link shows, not the latency."""
    largest: dict[tuple[Any, ...], Row] = {}
    for row in measured:
        largest[row["source"], row["op"], row["group_size"], row["node_count"]] = row
    heads = columns(
        "Source", "Operation", ">Ranks", ">Hosts", ">Largest message", ">Bus bandwidth", ">Best", ">Results"
    )
    rows = [
        [
            _source(row),
            _operation(row),
            _count(row["group_size"]),
            _count(row["node_count"]),
            show("size_bytes", row["size_bytes"]),
            show("busbw_bytes_per_s", row["busbw_approximate_median"]),
            show("busbw_bytes_per_s", row["busbw_max"]),
            f"{row['busbw_count']:,}",
        ]
        for row in list(largest.values())[:MOST_ROWS]
    ]
    more = f"{len(largest) - MOST_ROWS:,} more rows." if len(largest) > MOST_ROWS else ""
    return known(Grid("Measured at the largest message", heads, rows, more))


def _rows(tables: dict[str, pa.Table], table: str) -> list[Row]:
    found = tables.get(table)
    return found.to_pylist() if found is not None else []
