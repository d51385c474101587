"""Dimensions of groups without a description: right or unknown, never wrong, for every order of ranks."""

from __future__ import annotations

from itertools import permutations

import pytest

from diagnose.analyses.groups import groups
from diagnose.schema import INGESTED
from fixtures.simulate.many_ranks import DESCRIPTIONS, DIMS, Shape
from tests.analyses import many_ranks as many
from tests.analyses.rows import build

CALLS = INGESTED["calls"].empty()


def settings(**values):
    return build("settings", [{"key": k.replace("__", "."), "value": str(v)} for k, v in values.items()])


def described(shape):
    table = many.members(shape).to_pylist()
    return build("members", [{**row, "description": DESCRIPTIONS[row["group"][:2]]} for row in table])


def nodes(ranks, per_node):
    return len({rank // per_node for rank in ranks})


@pytest.mark.parametrize("order", list(permutations(DIMS)))
def test_every_rank_order_with_descriptions_and_without(order):
    shape = Shape(tp=2, cp=2, ep=2, dp=3, pp=2, order=order)
    named = groups(described(shape), CALLS, settings(cluster__gpus_per_node=8)).to_pylist()
    assert {row["group"][:2] for row in named} == set(DIMS)
    assert all(row["dim"] == row["group"][:2] and row["dim_source"] == "description" for row in named)
    assert all(row["node_count"] == nodes(row["ranks"], 8) for row in named)

    bare = groups(many.members(shape), CALLS, settings(cluster__gpus_per_node=8)).to_pylist()
    assert {(row["dim"], row["dim_source"]) for row in bare} == {("other", "unknown")}

    layout = {"layout__tp": 2, "layout__cp": 2, "layout__ep": 2, "layout__dp": 6, "layout__pp": 2}
    given = groups(many.members(shape), CALLS, settings(**layout, layout__rank_order="-".join(order))).to_pylist()
    assert all(row["dim"] == row["group"][:2] and row["dim_source"] == "job" for row in given)


def test_a_thousand_ranks():
    shape = Shape(tp=8, ep=4, dp=8, pp=4)
    rows = groups(described(shape), CALLS, settings(cluster__gpus_per_node=8)).to_pylist()
    assert shape.world_size == 1024
    assert all(row["dim"] == row["group"][:2] for row in rows)
    assert {row["node_count"] for row in rows if row["dim"] == "tp"} == {1}
    assert {row["node_count"] for row in rows if row["dim"] == "ep"} == {4}


def test_layouts_that_do_not_fit_say_nothing():
    shape = Shape(tp=2, dp=2)
    for layout in ({"layout__tp": 2, "layout__dp": 2}, {"layout__rank_order": "tp-dp", "layout__tp": "x"}):
        rows = groups(many.members(shape), CALLS, settings(**layout)).to_pylist()
        assert {row["dim_source"] for row in rows} == {"unknown"}


def call(op, rank, group="g", **more):
    return {"rank": rank, "group": group, "op": op, "group_size": 4, **more}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([call("all_to_all", 0, in_splits="[1, 3, 2, 2]")], ("ep", "inferred")),
        ([call("all_to_all", 0)], ("other", "unknown")),  # experts or sequences
        ([call("all_reduce", 0), call("all_gather", 0)], ("other", "unknown")),
        ([call("send", r, peer=r + 1) for r in range(3)] + [call("recv", r, peer=r - 1) for r in (1, 2, 3)],
         ("pp", "inferred")),
        ([call("send", r, peer=(r + 1) % 4) for r in range(4)], ("other", "unknown")),  # a ring
        ([call("send", 0, peer=1), call("recv", 1, peer=0)], ("other", "unknown")),  # two ranks: both
        ([call("send", 0, peer=1), call("recv", 0, peer=2)], ("other", "unknown")),  # one rank's view
    ],
)  # fmt: skip
def test_traffic_tells_only_what_nothing_else_looks_like(made, told):
    (row,) = groups(INGESTED["members"].empty(), build("calls", made)).to_pylist()
    assert (row["dim"], row["dim_source"]) == told


def test_hosts_come_before_a_count_of_gpus():
    hosts = ["a", "b", "a", "b"]
    files = build("files", [{"file": r, "rank": r, "host": h} for r, h in enumerate(hosts)])
    rows = groups(many.members(Shape(tp=2, dp=2)), CALLS, settings(cluster__gpus_per_node=2), files).to_pylist()
    by_name = {row["group"]: row for row in rows}
    assert by_name["tp0"]["node_count"] == 2 and by_name["tp0"]["fewest_node_count"] == 1
    assert by_name["dp0"]["node_count"] == 1 and by_name["dp0"]["per_node_count"] == 2
    some = build("files", [{"file": 0, "rank": 0, "host": "a"}])
    assert {r["node_count"] for r in groups(many.members(Shape(tp=2)), CALLS, None, some).to_pylist()} == {None}
