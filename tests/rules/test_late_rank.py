"""late-rank: one rank makes the others wait; never the ranks that wait."""

from __future__ import annotations

from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def late(rank, lost_ns, ratio, **more):
    return {
        "rank": rank, "calls_count": 8, "judged_count": 8, "last_count": 6 if lost_ns else 0, "blamed_ns": lost_ns,
        "lost_ns": lost_ns, "blamed_ratio": ratio, "caused_wait_ns": 3 * lost_ns, "incomplete_count": 0, **more,
    }  # fmt: skip


def job(*rows, slow_ns=0, **apart):
    """Two steps of 100 ms on three ranks; `slow_ns` is what rank 2 computes more."""
    made = [
        step(n, r, compute_ns=60 * MS + (slow_ns if r == 2 else 0), wait_ns=40 * MS - (slow_ns if r == 2 else 0))
        for r in range(3)
        for n in (1, 2)
    ]
    clocks = [{"rank": r, "reference": 0, "offset_ns": 0, "error_ns": 5_000} for r in range(3)]
    return tables(spans=spans(*made), late_ranks=list(rows), clocks=apart.get("clocks", clocks))


def fires(**more):
    return job(late(0, 0, 0.0), late(1, 2 * MS, 0.1), late(2, 18 * MS, 0.9, **more), slow_ns=8 * MS)


def test_fires_on_the_rank_that_comes_last_and_says_why():
    found = finding("late-rank", fires())
    assert found.ranks == (2,) and found.lost_ns == 9 * MS
    assert "rank 2 comes last in 6 of 8 shared calls" in found.summary
    assert "it computes 8.0 ms longer" in found.summary and found.confidence_ratio == 1.0


def test_missing_ranks_lower_the_confidence():
    found = finding("late-rank", fires(incomplete_count=3))
    assert found.confidence_ratio == 0.6 and "may be later still" in found.summary


def test_quiet_where_the_blame_is_spread():
    quiet("late-rank", job(late(0, 9 * MS, 0.33), late(1, 9 * MS, 0.33), late(2, 9 * MS, 0.34)))


def test_exactly_at_each_threshold():
    turns_exactly_at("late-rank", fires(), min_share_ratio=0.09, min_blamed_ratio=0.9)


def test_skipped_where_clocks_cannot_be_compared():
    alone = [{"rank": 0, "offset_ns": None, "error_ns": None}]
    result = outcome("late-rank", job(late(0, 0, None), clocks=alone))
    assert result.status == "skipped" and "traces of all ranks" in result.reason
