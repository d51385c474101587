"""late-rank: one rank makes the others wait; never the ranks that wait."""

from __future__ import annotations

from diagnose.analyses.compared_ranks import compared_ranks
from tests.rules.build import MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


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
    found = tables(spans=spans(*made), late_ranks=list(rows), clocks=clocks, **apart)
    needed = ("late_ranks", "spans", "rank_what_if", "collectives", "what_if")
    return {**found, "compared_ranks": compared_ranks(**{name: found[name] for name in needed})}


def fires(**more):
    return job(late(0, 0, 0.0), late(1, 2 * MS, 0.1), late(2, 18 * MS, 0.9, **more), slow_ns=8 * MS)


def test_fires_on_the_rank_that_comes_last_and_says_why():
    found = finding("late-rank", fires())
    assert found.ranks == (2,) and found.lost_ns == 9 * MS
    assert "rank 2 comes last in 6 of 8 shared calls" in found.summary
    assert "it computes 8.00 ms longer" in found.summary and found.confidence_ratio == 1.0


def test_missing_ranks_lower_the_confidence():
    found = finding("late-rank", fires(incomplete_count=3))
    assert found.confidence_ratio == 0.6 and "may be later still" in found.summary


def test_open_where_those_seen_may_wait_for_a_rank_that_was_not_given():
    """Nobody seen is late, but of 4 ms a step of their communication nobody knows what is waiting."""
    none_late = [late(r, 0, None, judged_count=0, incomplete_count=8) for r in range(3)]
    calls = [call("all_reduce", 3 * MS, step=n, rank=r) for r in range(3) for n in (1, 2)]
    quiet("late-rank", job(*none_late, collectives=calls))  # 3 % of the step is the threshold
    calls[0] = call("all_reduce", 3 * MS + 2, step=1, rank=0)
    result = outcome("late-rank", job(*none_late, collectives=calls))
    assert result.status == "skipped" and "traces of all ranks" in result.reason
    told = [{**row, "wait_ns": 0} for row in calls]
    quiet("late-rank", job(*none_late, collectives=told))
    found = [late(0, 0, 0.0), late(1, 2 * MS, 0.1), late(2, 18 * MS, 0.9, incomplete_count=3)]
    finding("late-rank", job(*found, slow_ns=8 * MS, collectives=calls))


def test_quiet_where_the_blame_is_spread():
    quiet("late-rank", job(late(0, 9 * MS, 0.33), late(1, 9 * MS, 0.33), late(2, 9 * MS, 0.34)))


def test_exactly_at_each_threshold():
    turns_exactly_at("late-rank", fires(), min_share_ratio=0.09, min_blamed_ratio=0.9)


def test_skipped_where_no_ranks_can_be_compared():
    result = outcome("late-rank", job())
    assert result.status == "skipped" and "traces of all ranks" in result.reason


def replayed(**gains):
    """Gains of the replay for rank 2: like the others, and by part."""
    parts = [{"fixed": "rank_part", "part": part, "rank": 2, "gain_ns": ns} for part, ns in gains.items()]
    return [{"fixed": "rank", "rank": 2, "gain_ns": max(gains.values())}, *parts]


def test_what_the_job_gains_stands_for_what_was_waited():
    """The replay knows that the next rank is nearly as late; it also knows the part that matters."""
    rows = (late(0, 0, 0.0), late(1, 2 * MS, 0.1), late(2, 18 * MS, 0.9))
    found = finding("late-rank", job(*rows, slow_ns=8 * MS, rank_what_if=replayed(compute=4 * MS, host=MS)))
    assert (found.lost_ns, found.lost_kind) == (4 * MS, "simulated")
    assert found.evidence["waits_ns"] == 9 * MS and found.evidence["cause"] == "compute"
    host = finding("late-rank", job(*rows, slow_ns=8 * MS, rank_what_if=replayed(compute=0, host=4 * MS)))
    assert host.evidence["cause"] == "host"
    quiet("late-rank", job(*rows, rank_what_if=replayed(compute=2 * MS)))


def workers(m_w, copies=2, gain_ns=9 * MS):
    """A pipeline of two stages whose slowest worker, rank 3, brings `m_w` of what an ideal job would."""
    rows = [
        {"fixed": "nothing", "measured_ns": 100 * MS, "steps_count": 5},
        {"fixed": "everything", "slowdown_ratio": 1.3},
        {"fixed": "slowest_workers", "ranks": [3], "explained_ratio": m_w, "gain_ns": 10 * MS},
        {"fixed": "slow_workers", "ranks": [3], "gain_ns": gain_ns, "explained_ratio": m_w},
        {"fixed": "stage", "stage": 1, "explained_ratio": 0.2},
    ]
    cells = [(r, r // copies) for r in range(2 * copies)]
    slow = 3 if copies == 2 else 1
    rows[2]["ranks"] = rows[3]["ranks"] = [slow]
    rows += [
        {"fixed": "worker", "rank": r, "stage": stage, "slowdown_ratio": 1.2 if r == slow else 1.0,
         "gain_ns": gain_ns if r == slow else 0}
        for r, stage in cells
    ]  # fmt: skip
    return job(what_if=rows)


def test_fires_on_a_slow_worker_of_a_pipeline():
    found = finding("late-rank", workers(0.9))
    assert found.ranks == (3,) and (found.lost_ns, found.lost_kind) == (9 * MS, "simulated")
    assert found.evidence["m_w_ratio"] == 0.9 and found.evidence["slowdown_ratio"] == 1.3
    turns_exactly_at("late-rank", workers(0.9), min_blamed_ratio=0.9, min_share_ratio=0.09)


def test_quiet_on_a_heavy_stage():
    """Few copies or one: what fixing the slowest workers brings is little, or says nothing about workers."""
    quiet("late-rank", workers(0.03))
    assert outcome("late-rank", workers(0.9, copies=1)).status == "skipped"
