"""The dimension that a process group's description states, for the names that frameworks give their groups."""

from __future__ import annotations

import pytest

from diagnose.analyses.groups import dimension

NAMES = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP EXPERT_TENSOR_PARALLEL_GROUP mesh_tp",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP EMBEDDING_GROUP POSITION_EMBEDDING_GROUP mesh_pp",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP mesh_ep ep_group",
    "cp": "CONTEXT_PARALLEL_GROUP HIERARCHICAL_CONTEXT_PARALLEL_GROUPS mesh_cp",
    "dp": "DATA_PARALLEL_GROUP DATA_PARALLEL_GROUP_WITH_CP INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP "
    "EXPERT_DATA_PARALLEL_GROUP mesh_dp_shard mesh_dp_replicate mesh_fsdp mesh_dp_shard_cp",
    "other": "MODEL_PARALLEL_GROUP TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP TENSOR_AND_CONTEXT_PARALLEL_GROUP "
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
    None: "default_pg undefined mesh_default",
}


@pytest.mark.parametrize(("name", "dim"), [(name, dim) for dim, names in NAMES.items() for name in names.split()])
def test_dimension(name: str, dim: str | None) -> None:
    assert dimension(name) == dim
    assert dimension(name.lower()) == dim
