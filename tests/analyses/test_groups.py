"""Dimensions come from descriptions alone; sizes and positions never guess one."""

from __future__ import annotations

import pytest

from diagnose.analyses.groups import SCHEMA, dimension, groups
from diagnose.schema import INGESTED
from tests.analyses import rows


@pytest.mark.parametrize(
    ("description", "dim"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("DATA_PARALLEL_GROUP", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EMBEDDING_GROUP", "pp"),
        ("POSITION_EMBEDDING_GROUP", "pp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("DATA_MODULO_EXPERT_PARALLEL_GROUP", "dp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", "other"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", "other"),
        ("MODEL_PARALLEL_GROUP", "other"),
        ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "other"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "other"),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", "other"),
        ("mesh_tp", "tp"),
        ("mesh_dp_shard", "dp"),
        ("mesh_dp_replicate", "dp"),
        ("mesh_dp_shard_cp", "dp"),
        ("mesh_dp_cp", "dp"),
        ("mesh_fsdp", "dp"),
        ("mesh_hsdp", "dp"),
        ("mesh_cp", "cp"),
        ("mesh_pp", "pp"),
        ("mesh_ep", "ep"),
        ("ep_group", "ep"),
        ("tp:0", "tp"),
        ("sequence_parallel_group", "cp"),
        ("default_pg", None),
        ("undefined", None),
        ("mesh_dim_0", None),
        ("", None),
        (None, None),
        ("sampler", None),
    ],
)
def test_descriptions(description, dim):
    assert dimension(description) == dim


def member(group, description, ranks, rank=0):
    return {"rank": rank, "group": group, "description": description, "size": len(ranks or []) or 64, "ranks": ranks}


def found(members, calls=(), settings=None, files=None):
    table = groups(
        rows.build("members", members),
        rows.build("calls", list(calls)) if calls else INGESTED["calls"].empty(),
        settings,
        files,
    )
    return table.to_pylist()


def test_a_group_whose_description_is_silent_is_unknown():
    row = found([member("0", "default_pg", [0, 1])])[0]
    assert (row["dim"], row["dim_source"]) == ("other", "unknown")


def test_several_ranks_describe_a_group_once_and_namesakes_apart():
    rows_ = found([
        member("1", "mesh_tp", [0, 1]), member("1", "mesh_tp", [0, 1], rank=1), member("1", "mesh_tp", [2, 3], rank=2),
    ])  # fmt: skip
    assert [(r["group"], r["ranks"], r["size"]) for r in rows_] == [("1", [0, 1], 2), ("1", [2, 3], 2)]


def test_groups_that_only_calls_name():
    rows_ = found(
        [member("0", "default_pg", [0, 1])], [{"group": "7", "group_size": 16}, {"group": "0", "group_size": 2}]
    )
    assert [(r["group"], r["size"], r["ranks"]) for r in rows_] == [("0", 2, [0, 1]), ("7", 16, None)]


def test_nodes_need_ranks_and_the_size_of_a_node():
    eight = rows.build("settings", [{"key": "cluster.gpus_per_node", "value": "8"}])
    assert found([member("0", "x", list(range(16)))], settings=eight)[0]["node_count"] == 2
    assert found([member("0", "x", [0, 8, 16])], settings=eight)[0]["node_count"] == 3
    assert found([member("0", "x", [0, 1])])[0]["node_count"] is None
    assert found([member("0", "x", None)], settings=eight)[0]["node_count"] is None


def test_hosts_tell_the_size_of_a_node_only_where_every_rank_has_one():
    def fewest(hosts, world):
        recorded = [{"file": i, "rank": i, "host": h, "world_size": world} for i, h in enumerate(hosts)]
        return found([member("0", "x", [0, 1, 2, 3])], files=rows.build("files", recorded))[0]["fewest_node_count"]

    assert fewest(["a", "a", "b", "b"], 4) == 2
    assert fewest(["a", "a", "b", "b"], 8) is None, "the other four may be on the same nodes"
    assert fewest(["a"], 4) is None


def test_no_members_no_groups():
    assert groups(INGESTED["members"].empty(), INGESTED["calls"].empty()).equals(SCHEMA.empty())
