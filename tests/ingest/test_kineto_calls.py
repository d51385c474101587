"""Collective calls and process groups as the Kineto reader finds them."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.schema import Tables
from tests.ingest.traces import event, problems, read, rows, trace

WORLD = {"rank": 0, "world_size": 64}


def call(name: str = "allreduce", cat: str = "kernel", **args: Any) -> dict[str, Any]:
    fixed = {"Collective name": name, "dtype": "BFloat16", "In msg nelems": 100, "Out msg nelems": 800, "Group size": 8}
    return event("record_param_comms" if cat == "cpu_op" else "ncclDevKernel", cat, **{**fixed, **args})


def members(*events: dict[str, Any], **info: Any) -> Tables:
    return read(trace(*events, distributedInfo={**WORLD, **info}))


@pytest.mark.parametrize(
    ("name", "op", "size"),
    [
        ("allreduce", "all_reduce", 200),
        ("_allgather_base", "all_gather", 1600),
        ("_reduce_scatter_base", "reduce_scatter", 200),
        ("all_to_allv", "all_to_all", 200),
        ("_broadcast_oop", "broadcast", 200),
        ("send", "send", 200),
        ("barrier", "barrier", None),
        ("wait", "wait", None),
        ("my_collective", "my_collective", 200),
    ],
)
@pytest.mark.parametrize("cat", ["kernel", "cpu_op"])
def test_names_and_sizes(name: str, op: str, size: int | None, cat: str) -> None:
    found = rows(read(trace(call(name, cat)))["calls"], "op", "size_bytes", "in_count", "out_count", "source")
    assert found == [(op, size, 100, 800, "kernel" if cat == "kernel" else "record_param_comms")]


@pytest.mark.parametrize(
    ("written", "dtype", "size"),
    [("Float", "float32", 4), ("c10::BFloat16", "bfloat16", 2), ("long int", "int64", 8), ("float", "float32", 4),
     ("ncclFloat32", "float32", 4), ("Float8_e4m3fn", "float8_e4m3fn", 1), ("Odd", "Odd", None)],
)  # fmt: skip
def test_types(written: str, dtype: str, size: int | None) -> None:
    found = rows(read(trace(call(dtype=written)))["calls"], "dtype", "size_bytes")
    assert found == [(dtype, None if size is None else 100 * size)]


def test_the_type_of_a_receive_without_input_is_unknown() -> None:
    received = call("recv", dtype="Byte", **{"In msg nelems": 0, "Src Rank": 3, "Rank": 1})
    assert rows(read(trace(received))["calls"], "dtype", "size_bytes", "out_count", "peer") == [(None, None, 800, 3)]


def test_keys_and_peers() -> None:
    sent = call("send", **{"Comms Id": 2**63 + 5, "Seq": 4, "Dst Rank": 9, "Process Group Name": "pp", "Rank": 1})
    assert rows(read(trace(sent))["calls"], "comm_id", "seq", "peer", "group") == [(2**63 + 5, 4, 9, "pp")]
    old = call(**{"Process Group ID": "7", "In msg nelems": None, "In msg size": 50})
    assert rows(read(trace(old))["calls"], "group", "in_count", "peer") == [("7", 50, None)]


def test_a_record_without_arguments_is_a_call_too() -> None:
    assert rows(read(trace(event("record_param_comms")))["calls"], "event_id", "op") == [(0, None)]


def test_splits_in_all_forms() -> None:
    text = trace(
        call("all_to_allv", **{"In split size": "[]", "Out split size": [1, 2]}),
        call("all_to_allv", **{"In split size": "[1, 2, ..., 9]", "Out split size": "@"}),
    ).replace('"@"', "[64, 64, ...]")
    tables = read(text)
    columns = ("in_splits", "out_splits", "splits_truncated")
    assert sorted(rows(tables["calls"], *columns), key=str) == [
        ('[1,2,"...",9]', '[64,64,"..."]', True),
        (None, "[1,2]", False),
    ]
    assert problems(tables) == {"repaired_event": 1, "truncated_splits": 1}


CUT_NEW = "[" + ", ".join(map(str, range(29))) + ", ..., 63]"
CUT_OLD = "[" + ", ".join(map(str, range(30))) + ", ...]"


@pytest.mark.parametrize(
    ("ranks", "size", "world", "expected", "source"),
    [
        (CUT_NEW, 64, 64, list(range(64)), "assumed_contiguous"),
        (CUT_NEW, 64, None, list(range(64)), "assumed_contiguous"),
        (CUT_NEW, 40, 64, None, "event"),
        (CUT_OLD, 64, 64, list(range(64)), "assumed_contiguous"),
        (CUT_OLD, 64, 48, None, "event"),
        (CUT_OLD, 64, None, None, "event"),
        ("[0, 2, 4, ..., 126]", 64, 128, None, "event"),
        ("[0, 2, 4]", 3, 8, [0, 2, 4], "event"),
        ([3, 5], 2, 8, [3, 5], "event"),
        ("[0, 2, 4]", 4, 8, None, "event"),
        ("[]", 3, 8, None, "event"),
    ],
)
def test_members_from_events(ranks: Any, size: int, world: int | None, expected: Any, source: str) -> None:
    info = {} if world is None else {"world_size": world}
    shown = call(**{"Process Group Ranks": ranks, "Group size": size, "Process Group Name": "g"})
    tables = read(trace(shown, distributedInfo={"rank": 0, **info}))
    assert rows(tables["members"], "group", "ranks", "source") == [("g", expected, source)]
    assert problems(tables).get("unknown_members", 0) == (expected is None)


def test_an_arithmetic_progression_is_certain() -> None:
    args = {"Process Group Ranks": "[0, 2, 4, ..., 126]", "Group size": 64, "Process Group Name": "g"}
    tables = members(call(**args, **{"Global rank start": 0, "Global rank stride": 2}))
    assert rows(tables["members"], "ranks", "source") == [(list(range(0, 128, 2)), "event")]


def test_members_from_the_header() -> None:
    config = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 64, "ranks": []},
        {"pg_name": "1", "pg_size": 2, "ranks": "[0, 4]"},
        {"pg_name": "2", "pg_size": 8, "ranks": []},
        {"uid": "3", "ranks": [1, 2]},
    ]
    shown = call(**{"Process Group Ranks": CUT_OLD, "Group size": 64, "Process Group Name": "0"})
    tables = members(shown, pg_config=config)
    assert rows(tables["members"], "group", "size", "ranks") == [
        ("0", 64, list(range(64))),
        ("1", 2, [0, 4]),
        ("2", 8, None),
        ("3", 2, [1, 2]),
    ]
    assert problems(tables) == {"unknown_members": 1}


def test_the_rank_from_a_process_group() -> None:
    shown = call(**{"Process Group Ranks": "[4, 6, 8]", "Group size": 3, "Rank": 1, "Process Group Name": "g"})
    assert rows(read(trace(shown))["files"], "rank", "rank_source") == [(6, "process_group")]
    peer = call("send", **{"Process Group Ranks": "[4, 6, 8]", "Group size": 3, "Rank": 1, "Process Group Name": "g"})
    assert rows(read(trace(peer))["files"], "rank") == [None], "the rank of a send is its peer's"
