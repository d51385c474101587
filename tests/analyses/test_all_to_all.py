"""Bytes between ranks in all-to-alls: the matrix against brute force, what is unknown, and how unequal calls are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analyses.all_to_all_bytes import all_to_all_bytes
from diagnose.analyses.all_to_all_loads import all_to_all_loads
from diagnose.analyses.calls_on_device import SCHEMA, calls_on_device
from diagnose.analyses.matches import SCHEMA as MATCHES
from diagnose.schema import INGESTED
from tests.analyses import rows as events_of
from tests.rules.build import table

WIDTH = 4
Row = dict[str, Any]


def call(rank: int, sent: list[int], received: list[int], **other: Any) -> Row:
    """A call of `rank` from its split sizes, in rows of WIDTH bytes."""
    return {
        "rank": rank, "step": 1, "group": "ep", "dim": "ep", "op": "all_to_all", "ts_ns": 0, "dur_ns": 10,
        "group_size": len(sent), "size_bytes": WIDTH * sum(sent), "received_bytes": WIDTH * sum(received),
        "in_splits": json.dumps(sent, separators=(",", ":")), "out_splits": json.dumps(received, separators=(",", ":")),
        "match": 0, **other,
    }  # fmt: skip


def told(calls: list[Row], groups: dict[str, list[int]] | None = None, world: int | None = None) -> list[pa.Table]:
    """(bytes, loads) of the calls; `groups`: ranks by name, as every rank says them."""
    names = SCHEMA.arrow.names
    columns = {c: [row.get(c) for row in calls] for c in names if any(c in row for row in calls)}
    columns["event_id"] = list(range(len(calls)))
    match = MATCHES.build(
        {
            "event_id": columns["event_id"], "rank": columns.get("rank", []),
            "match": [row["match"] for row in calls], "expected_count": [row["group_size"] for row in calls],
        }
    )  # fmt: skip
    said = [
        {"rank": rank, "group": name, "size": len(ranks), "ranks": ranks}
        for name, ranks in (groups or {}).items()
        for rank in ranks
    ]
    members = table("members", said) if said else INGESTED["members"].empty()
    files = INGESTED["files"].build({"file": [0], "world_size": [world]})
    given_ = (SCHEMA.build(columns), match, members, files)
    return [all_to_all_bytes(*given_), all_to_all_loads(*given_)]


def matrix(found: pa.Table) -> dict[tuple[int, int], int]:
    return {(r["rank"], r["peer"]): r["size_bytes"] for r in found.to_pylist()}


def jobs(ranks_count: int) -> st.SearchStrategy[tuple[list[int], list[list[int]]]]:
    """Ranks of a group in some order, and per call a flat matrix of sizes."""
    sizes = st.lists(st.integers(0, 9), min_size=ranks_count**2, max_size=ranks_count**2)
    ranks = st.permutations(range(10, 10 + ranks_count)).map(list)
    return st.tuples(ranks, st.lists(sizes, min_size=1, max_size=3))


@given(st.integers(2, 5).flatmap(jobs))
@settings(max_examples=60, deadline=None)
def test_every_pair_gets_what_the_splits_say(job: tuple[list[int], list[list[int]]]) -> None:
    ranks, moved = job
    n, want, calls = len(ranks), {}, []
    received_of: dict[tuple[int, int], int] = {}
    for number, flat in enumerate(moved):
        sizes = np.array(flat).reshape(n, n)
        for i, sender in enumerate(ranks):
            calls.append(call(sender, sizes[i].tolist(), sizes[:, i].tolist(), match=number))
            received_of[number, sender] = int(sizes[:, i].sum())
            for j, receiver in enumerate(ranks):
                want[sender, receiver] = want.get((sender, receiver), 0) + WIDTH * int(sizes[i, j])

    found, loads = told(calls, {"ep": list(ranks)})

    assert matrix(found) == want
    assert {r["told_by"] for r in found.to_pylist()} == {"sender"}
    assert {r["calls_count"] for r in found.to_pylist()} == {len(moved)}
    for row in loads.to_pylist():
        whole = sum(received_of[row["match"], rank] for rank in ranks)
        mine = received_of[row["match"], row["rank"]]
        assert row["received_ratio"] == (pytest.approx(mine * n / whole) if whole else None)
        assert row["own_bytes"] == WIDTH * moved[row["match"]][ranks.index(row["rank"]) * (n + 1)]


def test_a_sender_without_a_recording_is_told_by_those_who_received() -> None:
    found, loads = told([call(0, [1, 2, 3], [1, 4, 7]), call(1, [4, 5, 6], [2, 5, 8])], {"ep": [0, 1, 2]})
    assert {(r["rank"], r["peer"]): (r["size_bytes"], r["told_by"]) for r in found.to_pylist()} == {
        (0, 0): (4, "sender"), (0, 1): (8, "sender"), (0, 2): (12, "sender"),
        (1, 0): (16, "sender"), (1, 1): (20, "sender"), (1, 2): (24, "sender"),
        (2, 0): (28, "receiver"), (2, 1): (32, "receiver"),
    }  # fmt: skip
    assert loads["received_ratio"].to_pylist() == [None, None], "the third rank is not here"


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_splits": '[1,"...",2]', "out_splits": None},  # cut by the writer
        {"in_splits": "[1,2,3]", "out_splits": None},  # another group's
        {"in_splits": None, "out_splits": None, "received_bytes": None},  # nothing said: not even
        {"in_splits": None, "out_splits": None, "size_bytes": 8, "received_bytes": 12},
        {"group": "unheard of"},
        {"size_bytes": None, "out_splits": None},
        {"size_bytes": 13, "out_splits": None},  # no whole rows
    ],
)  # fmt: skip
def test_what_is_not_told_is_absent(wrong: Row) -> None:
    calls = [{**call(rank, [1, 2], [2, 1]), **wrong} for rank in (0, 1)]
    found, loads = told(calls, {"ep": [0, 1]})
    assert found.num_rows == loads.num_rows == 0


def test_without_lists_it_is_even_where_all_ranks_send_what_they_receive() -> None:
    even = {"in_splits": None, "out_splits": None, "size_bytes": 64, "received_bytes": 64}
    calls = [{**call(rank, [0] * 2, [0] * 2), **even} for rank in (0, 1)]
    found, loads = told(calls, {"ep": [0, 1]})
    assert set(matrix(found).values()) == {32}
    assert loads["splits"].to_pylist() == ["even"] * 2 and loads["received_ratio"].to_pylist() == [1.0, 1.0]
    calls[1] |= {"size_bytes": 128}
    assert told(calls, {"ep": [0, 1]})[0].num_rows == 0, "the other rank says otherwise"


def test_a_group_as_large_as_the_job_holds_all_ranks() -> None:
    calls = [call(rank, [1, 2], [1, 2], group=None, group_size=None) for rank in (0, 1)]
    for row in calls:
        row["group_size"] = 2
    assert matrix(told(calls, world=2)[0]) == {(0, 0): 4, (0, 1): 8, (1, 0): 4, (1, 1): 8}
    assert told(calls, world=4)[0].num_rows == 0, "which two of the four is unknown"


def test_other_operations_are_no_exchange() -> None:
    calls = [call(0, [1, 2], [1, 2], op=op) for op in ("all_gather", "p2p")]
    assert told(calls, {"ep": [0, 1]})[0].num_rows == 0


@pytest.mark.parametrize("ranges", [2, 3])
def test_host_exchanges_take_sizes_from_their_operators_in_order(ranges: int) -> None:
    """Two operators on the main thread, ranges on workers: told where there are equally many of both."""
    said = [("[[3, 8], [5, 8]]", "[2, 1]", "[4, 1]"), ("[[6, 8], [2, 8]]", "[3, 3]", "[]")]
    found = events_of.events(
        [{"kind": "op", "name": "c10d::alltoall_base_", "ts_ns": 100 * i, "dur_ns": 5, "thread": 1} for i in range(2)]
        + [
            {"kind": "annotation", "name": "gloo:all_to_all", "ts_ns": 100 * i + 10, "dur_ns": 50, "thread": 2 + i % 2}
            for i in range(ranges)
        ]
        + [{"kind": "op", "name": "aten::mm", "ts_ns": 400, "dur_ns": 100, "thread": 1}]
    )
    ids = found["event_id"].to_pylist()
    arguments = table(
        "op_args",
        [
            {"event_id": ids[i], "input_dims": dims[:-1] + ", [], [], [], [], []]",
             "input_types": '["float", "float", "", "ScalarList", "ScalarList", "Scalar", "Scalar"]',
             "concrete_inputs": json.dumps(["", "", "", out, into, "False", "-1"])}
            for i, (dims, out, into) in enumerate(said)
        ],
    )  # fmt: skip
    calls = of_host(found, arguments)
    assert [r["op"] for r in calls] == ["all_to_all"] * ranges
    got = [(r["size_bytes"], r["received_bytes"], r["in_splits"], r["out_splits"], r["dtype"]) for r in calls]
    whole = [(160, 96, "[4,1]", "[2,1]", "float32"), (64, 192, None, "[3,3]", "float32")]
    assert got == (whole if ranges == 2 else [(None,) * 5] * 3)


def of_host(found: pa.Table, arguments: pa.Table) -> list[Row]:
    """Rows of `calls_on_device` of a CPU-only recording."""
    from tests.analyses import drawn

    made = drawn.analysed(found, op_args=arguments)
    groups, steps = made["groups"], made["steps"]
    rows = calls_on_device(made["kernels"], INGESTED["calls"].empty(), groups, steps, found, arguments)
    return [dict(row) for row in rows.to_pylist()]
