"""The collective model: identities, published bandwidths, and what may never shrink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.formulas.bandwidth import busbw_factor
from diagnose.formulas.links import Fabric, Placement, collective_s, place, send_s

H100_LINK = Fabric(370e9, 50e9, 8)
H100 = Fabric(18 * 20.6e9, 50e9, 8, generation=90)
A100 = Fabric(12 * 20e9, 25e9, 8, generation=80)
GIB = 2**30


def bus(op: str, size: float, group: Placement, fabric: Fabric) -> float:
    return size / collective_s(op, size, group, fabric) * (busbw_factor(op, group.ranks) or 1) / 1e9


@pytest.mark.parametrize(
    ("op", "fabric", "group", "measured"),
    [
        ("all_reduce", H100, Placement(8, 8), 480),  # in-switch reduction
        ("all_gather", H100, Placement(8, 8), 361),
        ("reduce_scatter", H100, Placement(8, 8), 363),
        ("all_reduce", A100, Placement(8, 8), 235),
        ("all_reduce", H100, Placement(16, 8), 487),  # two p5 nodes
    ],
)
def test_large_messages_reach_the_measured_bus_bandwidth(
    op: str, fabric: Fabric, group: Placement, measured: float
) -> None:
    assert bus(op, 16 * GIB, group, fabric) == pytest.approx(measured, rel=0.08)


def test_all_reduce_is_reduce_scatter_then_all_gather_the_same_bytes() -> None:
    group, ring = Placement(8, 8), Fabric(200e9, 25e9, 8)
    both = sum(collective_s(op, 8 * GIB, group, ring) for op in ("reduce_scatter", "all_gather"))
    assert collective_s("all_reduce", 8 * GIB, group, ring) == pytest.approx(both, rel=0.05)


def test_all_nics_of_a_node_work_in_parallel() -> None:
    """Naive 'whole payload over one NIC' is several times off for a group that fills its nodes."""
    full, lone = Placement(32, 8), Placement(32, 1)
    assert collective_s("all_gather", 4 * GIB, lone, A100) > 5 * collective_s("all_gather", 4 * GIB, full, A100)


def test_placement_follows_the_rank_order() -> None:
    assert place(8, 1, 8) == Placement(8, 8)
    assert place(16, 1, 8) == Placement(16, 8)
    assert place(4, 8, 8) == Placement(4, 1)
    assert place(4, 4, 8).domains == 2


def test_a_group_of_one_moves_nothing() -> None:
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        assert collective_s(op, GIB, Placement(1, 1), H100) == 0.0


def test_a_boundary_over_the_network_costs_more() -> None:
    assert send_s(64e6, True, H100) > 5 * send_s(64e6, False, H100)


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    st.integers(10, 34),
    st.sampled_from([(2, 2), (8, 8), (16, 8), (64, 8), (8, 1), (64, 4)]),
)
def test_more_bytes_never_take_less_time(op: str, exponent: int, shape: tuple[int, int]) -> None:
    group = Placement(*shape)
    small, large = (collective_s(op, 2**n, group, H100) for n in (exponent, exponent + 1))
    assert 0 < small < large <= 2.01 * small


def test_an_all_to_all_inside_a_domain_needs_no_network() -> None:
    inside, lone = Placement(8, 8), Fabric(370e9, 0.0, 8)

    assert collective_s("all_to_all", 64 << 20, inside, lone) == collective_s("all_to_all", 64 << 20, inside, H100_LINK)
