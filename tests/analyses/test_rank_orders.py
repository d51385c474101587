"""The benchmark of rank orders in small: every dimension right or unknown, every node span exact."""

from __future__ import annotations

import pytest

from benchmarks.rank_orders import told, traffic_of
from fixtures.simulate.many_ranks import Shape

ORDERS = [("tp", "cp", "ep", "dp", "pp"), ("pp", "dp", "ep", "cp", "tp"), ("dp", "tp", "pp", "ep", "cp")]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_dimensions_are_right_or_unknown_and_spans_exact(order: tuple[str, ...]) -> None:
    shape = Shape(2, 2, 2, 2, 4, order=order)
    found = told(shape, traffic_of(shape))
    assert not {answer for _, answer in +found if "wrong" in answer}
    assert {evidence for evidence, answer in +found if answer == "unknown"} == {"traffic"}
    pipelines = sum(1 for _ in shape.groups("pp"))
    assert found["traffic", "right"] in (0, pipelines), "only a chain of sends and receives is told by traffic"
