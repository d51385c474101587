"""Process groups over all inputs, the parallel dimension each serves, and the nodes it spans.

The dimension comes from the group's description (Megatron, device meshes of FSDP2 and torchtitan, DeepSpeed, vLLM name
their groups), else from the job's layout, else from traffic where only one dimension fits (`_inferred_dims`); a group
that none of them tells stays `other` with source `unknown`, even where its size would fit one dimension. Groups that
span several dimensions (tensor and data, whole models) are `other` too.
Nodes come from the hosts that inputs name, where they name one for every rank of the group; else from
`cluster.gpus_per_node` of the job's settings, ranks taken to fill nodes in order. A group that could fit on fewer
nodes than it spans has a rank order that does not suit the machines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from diagnose.analyses._inferred_dims import by_layout, by_traffic
from diagnose.schema import INT32, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "process group",
    ("group", TEXT, "process group name"),
    ("description", TEXT, "as recorded"),
    ("size", INT32, "ranks in it"),
    ("ranks", RANKS, "global ranks; null where not known"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("dim_source", LABEL, "description | job | inferred | unknown"),
    ("node_count", INT32, "nodes it spans; null where unknown"),
    ("fewest_node_count", INT32, "nodes it needs at least, by its size; null where the size of a node is unknown"),
    ("per_node_count", INT32, "most of its ranks on one node; null where unknown"),
)

_W, _E = r"(?<![a-z])", r"(?![a-z])"
_DIMENSIONS: tuple[tuple[str, str], ...] = (
    (r"tensor_and_|tensor_model_pipeline|tp_?_?(?:dp|cp|pp|ep)" + _E + "|amax", "other"),
    (r"^model_parallel|intra_distributed_optimizer|" + _W + "world" + _E, "other"),
    (r"expert_tensor_parallel|tensor_model_parallel|tensor_parallel|" + _W + "e?tp" + _E, "tp"),
    (r"expert_data_parallel|data_modulo_expert|" + _W + "edp" + _E, "dp"),
    (r"data_parallel|" + _W + r"(?:dp|ddp|fsdp|hsdp|efsdp|edp)" + _E + r"|dp_(?:shard|replicate|cp|mod|in)|" + _W
     + r"(?:replicate|shard)" + _E, "dp"),
    (r"expert(?:_model)?_parallel|" + _W + "(?:ep|moe|expert)" + _E, "ep"),
    (r"context_parallel|sequence_parallel|ulysses|" + _W + r"(?:cp|sp|hcp|ring_attn)" + _E, "cp"),
    (r"pipeline|(?:position_)?embedding_group|" + _W + "pp" + _E, "pp"),
)  # fmt: skip
"""(pattern on the lower-case description, dimension), first match wins.

Sources: Megatron-LM parallel_state.py, torch DeviceMesh (`mesh_<name>`), torchtitan ParallelDims, DeepSpeed groups.py,
vLLM parallel_state.py (`tp:0`). Embedding groups tie the first and last pipeline stage."""


def dimension(description: str | None) -> str | None:
    """Dimension that a group's description states, None where it states none."""
    text = (description or "").lower()
    return next((dim for pattern, dim in _DIMENSIONS if re.search(pattern, text)), None)


def groups(
    members: pa.Table, calls: pa.Table, settings: pa.Table | None = None, files: pa.Table | None = None
) -> pa.Table:
    """Every group that any input describes or uses, once per set of ranks."""
    found = _listed(members, calls)
    given = _given(settings)
    nodes = _Nodes(_gpus_per_node(given), _hosts(files), _world(files))
    dims = _dimensions(found, calls, given)
    spans = [nodes.of(ranks) for _, ranks in found]
    return SCHEMA.build(
        {
            "group": pa.array([name for name, _ in found], pa.string()),
            "description": pa.array([e["description"] for e in found.values()], pa.string()),
            "size": pa.array([e["size"] for e in found.values()], pa.int32()),
            "ranks": pa.array([list(ranks) if ranks else None for _, ranks in found], RANKS),
            "dim": pa.array([dim for dim, _ in dims], pa.string()).cast(LABEL),
            "dim_source": pa.array([source for _, source in dims], pa.string()).cast(LABEL),
            "node_count": pa.array([len(s) if s else None for s in spans], pa.int32()),
            "fewest_node_count": pa.array([nodes.fewest(e["size"]) for e in found.values()], pa.int32()),
            "per_node_count": pa.array([max(s) if s else None for s in spans], pa.int32()),
        }
    )


_Key = tuple[str, tuple[int, ...] | None]


def _listed(members: pa.Table, calls: pa.Table) -> dict[_Key, dict[str, Any]]:
    """(name, ranks) -> description and size."""
    found: dict[_Key, dict[str, Any]] = {}
    for row in members.select(["group", "description", "size", "ranks"]).to_pylist():
        ranks = tuple(row["ranks"]) if row["ranks"] else None
        entry = found.setdefault((row["group"], ranks), {"description": None, "size": None})
        entry["description"] = entry["description"] or row["description"]
        entry["size"] = entry["size"] or row["size"]
    described = {name for name, _ in found}
    known = {name for name, ranks in found if ranks}
    found = {key: entry for key, entry in found.items() if key[1] or key[0] not in known}
    for row in calls.select(["group", "group_size"]).group_by(["group", "group_size"]).aggregate([]).to_pylist():
        if row["group"] is not None and row["group"] not in described:
            found.setdefault((row["group"], None), {"description": None, "size": row["group_size"]})
    return found


def _dimensions(found: dict[_Key, dict[str, Any]], calls: pa.Table, given: Mapping[str, str]) -> list[tuple[str, str]]:
    """(dimension, where it comes from) per group."""
    said = [dimension(str(entry["description"] or "")) for entry in found.values()]
    laid_out = by_layout(given)
    names = [name for name, _ in found]
    traffic = by_traffic(calls) if None in said else {}
    result = []
    for (name, ranks), dim in zip(found, said, strict=True):
        placed = laid_out.get(tuple(sorted(ranks))) if ranks else None
        moved = traffic.get(name) if names.count(name) == 1 else None
        options = ((dim, "description"), (placed, "job"), (moved, "inferred"), ("other", "unknown"))
        result.append(next((d, source) for d, source in options if d is not None))
    return result


def _given(settings: pa.Table | None) -> dict[str, str]:
    if settings is None:
        return {}
    rows = zip(settings["key"].to_pylist(), settings["value"].to_pylist(), strict=True)
    return {key: str(value).strip() for key, value in rows if key and value is not None}


def _gpus_per_node(given: Mapping[str, str]) -> int | None:
    value = given.get("cluster.gpus_per_node", "")
    return int(value) if value.isdecimal() and int(value) > 0 else None


def _world(files: pa.Table | None) -> int:
    """Ranks of the job, as its files say; 0 where they do not, or do not agree."""
    sizes = set(files["world_size"].drop_null().to_pylist()) if files is not None else set()
    return int(sizes.pop()) if len(sizes) == 1 else 0


def _hosts(files: pa.Table | None) -> dict[int, str]:
    """Host of each rank, where exactly one is named."""
    hosts: dict[int, set[str]] = {}
    if files is not None:
        for rank, host in zip(files["rank"].to_pylist(), files["host"].to_pylist(), strict=True):
            if rank is not None and rank >= 0 and host:
                hosts.setdefault(rank, set()).add(host)
    return {rank: names.pop() for rank, names in hosts.items() if len(names) == 1}


class _Nodes(NamedTuple):
    """Where ranks live, as far as it is known."""

    per_node: int | None
    host_of: Mapping[int, str]
    ranks_count: int  # of the job; 0 where unknown

    def of(self, ranks: tuple[int, ...] | None) -> list[int]:
        """Ranks of the group on each node it spans; empty where that is not known."""
        if not ranks:
            return []
        if all(rank in self.host_of for rank in ranks):
            return list(Counter(self.host_of[rank] for rank in ranks).values())
        return list(Counter(rank // self.per_node for rank in ranks).values()) if self.per_node else []

    def fewest(self, size: int | None) -> int | None:
        """Nodes that many ranks need."""
        if not size or not self.room:
            return None
        return -(-size // self.room)

    @property
    def room(self) -> int:
        """Ranks that a node holds; 0 where that is unknown, as while the host of any rank is."""
        whole = 0 < self.ranks_count <= len(self.host_of)
        return self.per_node or (max(Counter(self.host_of.values()).values(), default=0) if whole else 0)
