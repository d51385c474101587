"""slow-boundary: one group transfers slower than its equals."""

from __future__ import annotations

from diagnose.analyses.boundaries import boundaries
from tests.rules.build import MIB, MS, call, finding, quiet, spans, step, tables, turns_exactly_at


def measured(name, busbw, **more):
    return {"group": name, "dim": "dp", "op": "all_reduce", "size_bytes": MIB, "ranks_count": 2, "node_count": 2,
            "busbw_bytes_per_s": busbw, **more}  # fmt: skip


def job(*rows, **more):
    """A step of 100 ms with 20 ms of exposed transfer in the group `slow`."""
    made = call("all_reduce", 20 * MS, group="slow", size_bytes=MIB, wait_ns=0, transfer_ns=20 * MS, exposed_wait_ns=0)
    found = tables(
        link_expectations=list(rows),
        collectives=[made],
        spans=spans(step(compute_ns=80 * MS, comm_ns=20 * MS)),
        groups=[{"group": "slow", "ranks": [2, 3]}],
        **more,
    )
    needed = ("link_expectations", "collectives", "spans", "mean_steps", "groups", "rank_what_if", "what_if")
    return {**found, "boundaries": boundaries(**{name: found[name] for name in needed})}


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


def test_what_the_job_gains_stands_for_what_is_exposed():
    replayed = [{"fixed": "group", "group": "slow", "gain_ns": 4 * MS}]
    rows = (measured("slow", 44e9), measured("a", 88e9), measured("b", 88e9))
    found = finding("slow-boundary", job(*rows, rank_what_if=replayed))
    assert (found.lost_ns, found.lost_kind, found.evidence["more_ns"]) == (4 * MS, "simulated", 10 * MS)
    quiet("slow-boundary", job(*rows, rank_what_if=[{**replayed[0], "gain_ns": MS}]))


def stages(own_ns, gain_ns):
    """Three boundaries of a pipeline, the second one slow."""
    links = [
        {"fixed": "link", "stage": s, "ranks": [s, s + 1], "own_ns": MS, "usual_ns": MS, "gain_ns": 0} for s in range(3)
    ]
    links[1] |= {"own_ns": own_ns, "gain_ns": gain_ns}
    return job(what_if=[{"fixed": "nothing", "measured_ns": 100 * MS, "steps_count": 5}, *links])


def test_fires_on_a_boundary_of_two_stages():
    found = finding("slow-boundary", stages(3 * MS, 20 * MS))
    assert found.ranks == (1, 2) and (found.lost_ns, found.lost_kind) == (20 * MS, "simulated")
    assert "stages 1 and 2 need 3.00 ms for a transfer, 2 equals 1.00 ms" in found.summary
    turns_exactly_at("slow-boundary", stages(3 * MS, 20 * MS), min_share_ratio=0.2, min_slowdown_ratio=3.0)
    quiet("slow-boundary", stages(MS, 0))
