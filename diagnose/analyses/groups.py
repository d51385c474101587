"""Process groups over all inputs, and the parallel dimension each serves.

The dimension comes from the group's description alone (Megatron, device meshes of FSDP2 and torchtitan, DeepSpeed,
vLLM name their groups); a group whose description does not say stays `other` with source `unknown`, even where its
size would fit one dimension. Groups that span several dimensions (tensor and data, whole models) are `other` too.
`node_count` needs the ranks and `cluster.gpus_per_node` of the job's settings; ranks are taken to fill nodes in order.
"""

from __future__ import annotations

import re

import pyarrow as pa

from diagnose.schema import INT32, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "process group",
    ("group", TEXT, "process group name"),
    ("description", TEXT, "as recorded"),
    ("size", INT32, "ranks in it"),
    ("ranks", RANKS, "global ranks; null where not known"),
    ("dim", LABEL, "tp | cp | ep | pp | dp | other"),
    ("dim_source", LABEL, "description | ranks | job | unknown"),
    ("node_count", INT32, "nodes it spans; null where unknown"),
)

_W, _E = r"(?<![a-z])", r"(?![a-z])"
_DIMENSIONS: tuple[tuple[str, str], ...] = (
    (r"tensor_and_|tensor_model_pipeline|tp_?_?(?:dp|cp|pp|ep)" + _E + "|amax", "other"),
    (r"^model_parallel|" + _W + "world" + _E, "other"),
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


def groups(members: pa.Table, calls: pa.Table, settings: pa.Table | None = None) -> pa.Table:
    """Every group that any input describes or uses, once per set of ranks."""
    per_node = _gpus_per_node(settings)
    found: dict[tuple[str, tuple[int, ...] | None], dict[str, object]] = {}
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
    dims = [dimension(str(entry["description"] or "")) for entry in found.values()]
    return SCHEMA.build(
        {
            "group": pa.array([name for name, _ in found], pa.string()),
            "description": pa.array([e["description"] for e in found.values()], pa.string()),
            "size": pa.array([e["size"] for e in found.values()], pa.int32()),
            "ranks": pa.array([list(ranks) if ranks else None for _, ranks in found], RANKS),
            "dim": pa.array([d or "other" for d in dims], pa.string()).cast(LABEL),
            "dim_source": pa.array(["description" if d else "unknown" for d in dims], pa.string()).cast(LABEL),
            "node_count": pa.array([_nodes(ranks, per_node) for _, ranks in found], pa.int32()),
        }
    )


def _gpus_per_node(settings: pa.Table | None) -> int | None:
    if settings is None:
        return None
    for key, value in zip(settings["key"].to_pylist(), settings["value"].to_pylist(), strict=True):
        if key == "cluster.gpus_per_node" and value and str(value).strip().isdecimal() and int(value) > 0:
            return int(value)
    return None


def _nodes(ranks: tuple[int, ...] | None, per_node: int | None) -> int | None:
    return len({rank // per_node for rank in ranks}) if ranks and per_node else None
