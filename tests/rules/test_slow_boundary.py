"""slow-boundary: one group transfers slower than its equals."""

from __future__ import annotations

from tests.rules.build import MIB, MS, call, finding, quiet, spans, step, tables, turns_exactly_at


def measured(name, busbw, **more):
    return {"group": name, "dim": "dp", "op": "all_reduce", "size_bytes": MIB, "ranks_count": 2, "node_count": 2,
            "busbw_bytes_per_s": busbw, **more}  # fmt: skip


def job(*rows):
    """A step of 100 ms with 20 ms of exposed transfer in the group `slow`."""
    made = call("all_reduce", 20 * MS, group="slow", size_bytes=MIB, wait_ns=0, transfer_ns=20 * MS, exposed_wait_ns=0)
    return tables(
        link_expectations=list(rows),
        collectives=[made],
        spans=spans(step(compute_ns=80 * MS, comm_ns=20 * MS)),
        groups=[{"group": "slow", "ranks": [2, 3]}],
    )


def fires():
    return job(measured("slow", 44e9), measured("a", 88e9), measured("b", 88e9))


def test_fires_on_the_slow_one_with_its_ranks():
    found = finding("slow-boundary", fires())
    assert found.lost_ns == 10 * MS and found.ranks == (2, 3) and found.evidence["group"] == "slow"


def test_quiet_where_all_are_alike_or_nothing_is_comparable():
    quiet("slow-boundary", job(*[measured(n, 44e9) for n in ("slow", "a", "b")]))
    quiet("slow-boundary", job(measured("slow", 44e9), measured("a", 88e9)))
    quiet("slow-boundary", job(measured("slow", 44e9), *[measured(n, 88e9, node_count=1) for n in "ab"]))
    quiet("slow-boundary", job(measured("slow", 44e9), *[measured(n, 88e9, size_bytes=2 * MIB) for n in "ab"]))


def test_exactly_at_each_threshold():
    turns_exactly_at("slow-boundary", fires(), min_share_ratio=0.1, min_slowdown_ratio=2.0)
