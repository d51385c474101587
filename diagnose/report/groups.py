"""Process groups over ranks and nodes: which dimension each serves, how that is known, and where it crosses nodes.

A group whose dimension nothing tells is called unknown, even where its size would fit one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Block, Figure, Grid, Name, Section, columns, known
from diagnose.report._figures import height
from diagnose.report._figures_groups import lanes
from diagnose.report._text import clean, name
from diagnose.units import ranges

ORDER = 65
MOST_ROWS = 24
MOST_RANKS = 256
_DIMS = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline", "dp": "data"}
_SOURCES = {
    "description": "its description",
    "job": "the layout that was given",
    "inferred": "its traffic, which fits one dimension only",
    "unknown": "unknown: neither description, layout nor traffic tells",
}
Row = dict[str, Any]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no group of several ranks is known."""
    found = tables.get("groups")
    groups = [g for g in found.to_pylist() if g["size"] != 1] if found is not None else []
    if not groups:
        return None
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for g in groups:
        key = (g["dim"], g["dim_source"], g["description"], g["size"], g["node_count"], g["fewest_node_count"])
        kinds.setdefault(key, []).append(g)
    ordered = sorted(kinds.items(), key=lambda item: (item[0][1] == "unknown", *(str(v) for v in item[0])))
    blocks: list[Block] = []
    shown = [own for _, own in ordered if any(g["ranks"] for g in own)][:MOST_ROWS]
    if shown:
        blocks.append(_figure(shown, _nodes(tables, groups)))
    blocks.append(_grid(ordered))
    return Section("groups", "Process groups", blocks, _lead(groups))


def _lead(groups: list[Row]) -> str:
    unknown = sum(g["dim_source"] == "unknown" for g in groups)
    known_ = f"{len(groups):,} groups" if len(groups) > 1 else "1 group"
    said = f"{known_}; the dimension of {unknown:,} is unknown" if unknown else f"{known_}, all of known dimension"
    wide = [
        g for g in groups if g["node_count"] and g["fewest_node_count"] and g["node_count"] > g["fewest_node_count"]
    ]
    if all(g["node_count"] is None for g in groups):
        return f"{said}. Which nodes they span is unknown: give job.toml with cluster.gpus_per_node."
    return f"{said}. {len(wide):,} of them on more nodes than needed." if wide else f"{said}."


def _dim(group: Row) -> str:
    if group["dim_source"] == "unknown":
        return "unknown"
    return _DIMS.get(group["dim"], "several dimensions" if group["dim"] == "other" else clean(group["dim"]))


def _grid(ordered: list[tuple[tuple[Any, ...], list[Row]]]) -> Grid:
    """Groups of one kind, size and span in one row."""
    heads = columns(
        "Dimension", "Known from", "Description", ">Groups", ">Ranks", ">Nodes", ">Nodes needed", "First group"
    )  # fmt: skip
    cells = [
        [
            _dim(own[0]),
            _SOURCES.get(own[0]["dim_source"], clean(own[0]["dim_source"])),
            name(own[0]["description"], 40),
            f"{len(own):,}",
            *(_count(own[0][column]) for column in ("size", "node_count", "fewest_node_count")),
            name(ranges(own[0]["ranks"]) if own[0]["ranks"] else None, 40),
        ]
        for _, own in ordered
    ]
    more = f"{len(cells) - MOST_ROWS:,} more kinds." if len(cells) > MOST_ROWS else ""
    return known(Grid("Process groups and the nodes they span", heads, cells[:MOST_ROWS], more))


def _count(value: int | None) -> str | Name:
    return UNKNOWN_NAME if value is None else f"{value:,}"


def _figure(shown: list[list[Row]], nodes: dict[int, str]) -> Figure:
    """A lane per kind of group; ranks of one group have one shade."""
    bars: list[list[tuple[str, list[int], str]]] = []
    labels = []
    for own in shown:
        labels.append(f"{_dim(own[0])} · {clean(own[0]['description'] or own[0]['group'])}")
        bars.append(
            [
                (
                    g["dim"] if g["dim_source"] != "unknown" else "unknown",
                    [r for r in g["ranks"] if r < MOST_RANKS],
                    f"{_dim(g)} group {g['group']}: ranks {ranges(g['ranks'])}",
                )
                for g in own
                if g["ranks"]
            ]
        )
    last = max(r for own in shown for g in own for r in g["ranks"] or ())
    ranks = min(last + 1, MOST_RANKS)
    borders = [r for r in range(1, ranks) if r in nodes and r - 1 in nodes and nodes[r] != nodes[r - 1]]
    note = "Ranks of one group stand in one shade. Lines are borders of nodes." if borders else (
        "Ranks of one group stand in one shade. Borders of nodes are unknown."
        if not nodes else "Ranks of one group stand in one shade; all on one node."
    )  # fmt: skip
    if last >= MOST_RANKS:
        note += f" The first {MOST_RANKS} of {last + 1:,} ranks."
    alt = f"{len(labels)} kinds of process groups over {ranks} ranks."
    return Figure("Groups over ranks", lanes(labels, bars, borders, ranks), height(len(labels)), alt, note)


def _nodes(tables: dict[str, pa.Table], groups: list[Row]) -> dict[int, str]:
    """Node of each rank: the host its input names, else by the size of a node where the settings give it."""
    hosts: dict[int, set[str]] = {}
    files = tables.get("files")
    for row in files.select(["rank", "host"]).to_pylist() if files is not None else []:
        if row["rank"] is not None and row["rank"] >= 0 and row["host"]:
            hosts.setdefault(row["rank"], set()).add(row["host"])
    if hosts:
        return {rank: names.pop() for rank, names in hosts.items() if len(names) == 1}
    settings = tables.get("settings")
    for row in settings.select(["key", "value"]).to_pylist() if settings is not None else []:
        value = str(row["value"]).strip()
        if row["key"] == "cluster.gpus_per_node" and value.isdecimal() and int(value) > 0:
            known_ranks = {r for g in groups for r in g["ranks"] or ()}
            return {r: str(r // int(value)) for r in known_ranks}
    return {}
