"""moving-straggler: the wait is real, but no rank is the cause of most of it."""

from __future__ import annotations

from diagnose.analyses.uneven_work import uneven_work
from tests.rules.build import MS, finding, quiet, table, turns_exactly_at
from tests.rules.test_late_rank import job, late


def turns(*rows, **more):
    """Three ranks that are late in turns, 9 ms a step in the worst of two groups."""
    late_calls = [
        {"step": n, "dim": "dp", "group": g, "last_rank": r, "inherited": False, "exposed_late_ns": ns, "match": 0}
        for n in (1, 2)
        for g, ns in (("a", 3 * MS), ("b", MS))
        for r in range(3)
    ]
    passed_on = {**late_calls[0], "inherited": True, "exposed_late_ns": 50 * MS}
    unclear = {**late_calls[0], "last_rank": None, "exposed_late_ns": 50 * MS}
    found = {**job(*rows), "arrivals": table("arrivals", [*late_calls, passed_on, unclear]), **more}
    needed = ("late_ranks", "arrivals", "spans", "mean_steps", "rank_what_if", "expert_balance")
    return {**found, "uneven_work": uneven_work(**{name: found[name] for name in needed})}


def fires(**more):
    return turns(*[late(r, 6 * MS, s, last_count=4) for r, s in ((0, 0.3), (1, 0.3), (2, 0.4))], **more)


def test_fires_on_turns():
    found = finding("moving-straggler", fires())
    assert found.lost_ns == 9 * MS and found.ranks == (0, 1, 2)


def test_quiet_where_one_rank_has_most_of_it():
    quiet("moving-straggler", turns(late(0, 0, 0.0), late(1, 2 * MS, 0.1), late(2, 18 * MS, 0.9)))


def test_quiet_where_few_calls_show_no_pattern():
    quiet("moving-straggler", turns(*[late(r, 6 * MS, 1 / 3, last_count=1) for r in range(3)]))


def test_exactly_at_each_threshold():
    turns_exactly_at("moving-straggler", fires(), min_share_ratio=0.09, min_judged_count=12)
    quiet("moving-straggler", fires(), min_blamed_ratio=0.39)
    assert finding("moving-straggler", fires(), min_blamed_ratio=0.4).lost_ns == 9 * MS


def test_what_the_job_gains_and_why():
    gains = [
        {"fixed": "balance", "gain_ns": 7 * MS},
        {"fixed": "balance_part", "part": "gc", "gain_ns": 6 * MS},
        {"fixed": "balance_part", "part": "compute", "gain_ns": MS},
    ]
    found = finding("moving-straggler", fires(rank_what_if=table("rank_what_if", gains)))
    assert (found.lost_ns, found.lost_kind, found.evidence["cause"]) == (7 * MS, "simulated", "gc")
