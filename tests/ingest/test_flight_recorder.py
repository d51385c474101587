"""Flight recorder dumps of every version, pickled and as JSON, and which rank wrote them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from diagnose.ingest import Source, expand, merge, read
from diagnose.schema import Tables


def entry(seq: int, **more: Any) -> dict[str, Any]:
    return {
        "record_id": seq,
        "pg_id": 3,
        "process_group": ("7", "TENSOR_MODEL_PARALLEL_GROUP"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:_all_gather_base",
        "time_created_ns": 1_758_610_505_592_849_034 + seq,
        "input_sizes": [[256]],
        "output_sizes": [[1024]],
        "input_dtypes": ["BFloat16"],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "is_p2p": False,
        **more,
    }


def dump(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
              "7": {"name": "7", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[2, 3]"}}  # fmt: skip
    status = {"3": {"last_enqueued_collective": 9, "last_started_collective": -1, "last_completed_collective": 4}}
    return {"version": "2.10", "pg_config": config, "pg_status": status, "entries": list(entries), **more}


def tables(folder: Path, name: str, document: object) -> Tables:
    path = folder / name
    path.write_bytes(json.dumps(document).encode() if name.endswith("json") else pickle.dumps(document, 2))
    return read(Source(str(path)))


def first(found: Tables, table: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = found[table].to_pylist()
    return rows[0]


def test_newest_layout(tmp_path: Path) -> None:
    found = tables(tmp_path, "nccl_trace_rank_2", dump(entry(5), entry(6, state="completed")))
    call = first(found, "calls")
    assert (call["group"], call["group_size"], call["seq"], call["op"], call["state"]) == (
        "7",
        2,
        5,
        "all_gather",
        "scheduled",
    )
    assert (call["size_bytes"], call["dtype"], call["in_count"], call["out_count"]) == (2048, "bfloat16", 256, 1024)
    assert call["ts_ns"] == 1_758_610_505_592_849_039, "exact to the nanosecond"
    assert first(found, "files")["world_size"] == 4
    assert first(found, "enqueued") | {"rank": None, "file": None} == {
        "rank": None, "file": None, "group": "7", "enqueued_seq": 9, "started_seq": None, "completed_seq": 4,
    }  # fmt: skip


def test_pickle_and_json_of_one_rank_are_one_dump(tmp_path: Path) -> None:
    written = dump(entry(5))
    as_json = json.loads(json.dumps(written).replace("null", "0").replace('_collective": 9', '_collective": "9"'))
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(written, 2))
    (tmp_path / "fr_rank_2.json").write_text(json.dumps(as_json))
    found = merge([read(source) for source in expand([str(tmp_path)])[0]])
    assert found["calls"].num_rows == 1
    assert "duplicate_file" in found["quality"]["problem"].to_pylist()


def test_empty_dumps_of_one_rank_are_one_dump_too(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(dump(), 2))
    (tmp_path / "fr_rank_2.json").write_text(json.dumps(dump()))
    found = merge([read(source) for source in expand([str(tmp_path)])[0]])
    assert found["files"].num_rows == 1


NAMES = (
    "_dump_2", "nccl_trace_rank_2", "comm_lib_trace_rank_2", "gpu-node-17_2", "rank2.json", "dump-2.pickle", "h_rank2",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_rank_from_the_name(name: str, tmp_path: Path) -> None:
    row = first(tables(tmp_path, name, dump(entry(1))), "files")
    assert (row["rank"], row["rank_source"]) == (2, "file_name")


def test_no_rank_from_a_time_or_from_a_rank_that_is_in_none_of_its_groups(tmp_path: Path) -> None:
    assert first(tables(tmp_path, "dump_1700000000", dump(entry(1))), "files")["rank"] is None
    found = tables(tmp_path, "_dump_9", dump(entry(1)))
    assert first(found, "files")["rank"] is None
    assert "rank_conflict" in found["quality"]["problem"].to_pylist()


def test_the_groups_say_the_rank_where_they_share_only_one(tmp_path: Path) -> None:
    written = dump(entry(1))
    written["pg_config"]["9"] = {"name": "9", "desc": "DATA_PARALLEL_GROUP", "ranks": "[1, 3]"}
    row = first(tables(tmp_path, "anything", written), "files")
    assert (row["rank"], row["rank_source"]) == (3, "process_group")


def test_point_to_point_counts_on_its_own(tmp_path: Path) -> None:
    sent = entry(8, profiling_name="nccl:send 1->0", is_p2p=True, p2p_seq_id=77)
    call = first(tables(tmp_path, "_dump_3", dump(sent)), "calls")
    assert (call["op"], call["seq"], call["peer"]) == ("send", None, 2), "ranks of a p2p name are ranks in the group"


def test_status_is_joined_in_order_where_no_entry_names_the_group(tmp_path: Path) -> None:
    status = {str(i): {"last_enqueued_collective": str(10 + i), "last_completed_collective": "-1"} for i in (0, 3)}
    found = tables(tmp_path, "_dump_3", dump(pg_status=status))
    rows = {row["group"]: (row["enqueued_seq"], row["completed_seq"]) for row in found["enqueued"].to_pylist()}
    assert rows == {"0": (10, 0), "7": (13, 0)}


def test_gloo_states_are_unknown(tmp_path: Path) -> None:
    written = dump(entry(1, profiling_name="gloo:all_reduce", retired=True), pg_status={})
    assert first(tables(tmp_path, "_dump_3", written), "calls")["state"] is None


def test_torch_2_2_is_a_list(tmp_path: Path) -> None:
    old = {"pg_id": 0, "seq_id": 4, "profiling_name": "nccl:all_reduce", "state": "completed", "retired": True}
    old |= {"time_created_us": 1_700_000_000_000_000, "input_sizes": [[8]], "output_sizes": [[8]], "frames": []}
    call = first(tables(tmp_path, "nccl_trace_rank_1", [old]), "calls")
    assert (call["seq"], call["ts_ns"], call["size_bytes"], call["group"]) == (4, 1_700_000_000_000_000_000, None, "0")


def test_torch_2_3_lists_ranks_by_number(tmp_path: Path) -> None:
    old = {**entry(4, pg_id=0), "seq_id": 4, "duration_ms": 1.5}
    for name in ("process_group", "collective_seq_id", "is_p2p", "input_dtypes"):
        del old[name]
    found = tables(tmp_path, "nccl_trace_rank_1", {"version": "1.4", "pg_config": {0: [0, 1]}, "entries": [old]})
    assert first(found, "members")["ranks"] == [0, 1]
    assert (first(found, "calls")["group"], first(found, "calls")["dur_ns"]) == ("0", 1_500_000)


@pytest.mark.parametrize("content", [b'{"pg_config": {}, "entries": [{"a"', b'{"pg_config": {}, "entries": [3]}',
                                     pickle.dumps({"pg_config": 1, "entries": {"a": print}}, 4)])  # fmt: skip
def test_damage_is_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(content)
    row = first(read(Source(str(path))), "files")
    assert (row["status"], "expected" in row["detail"]) == ("unusable", True)
