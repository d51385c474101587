"""Who came last, by how much, and what the ranks together make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.analyses.arrivals import arrivals
from diagnose.analyses.clocks import clocks
from diagnose.analyses.collectives import collectives
from diagnose.analyses.late_ranks import late_ranks
from diagnose.analyses.matches import matches
from diagnose.schema import INGESTED
from fixtures.simulate.many_ranks import Faults, calls
from tests import ask
from tests.analyses import many_ranks as many
from tests.analyses.test_clocks import SHAPE
from tests.rules.build import table as build

US = 1_000


def shared(*starts, error=0, offset=(), complete=True, end=1_000 * US, exposed=None, groups=None):
    """One all-reduce of ranks that start at `starts` (us) and end together."""
    ranks = range(len(starts))
    rows = [
        {"event_id": r, "rank": r, "step": 1, "op": "all_reduce", "dim": "dp", "ts_ns": s * US, "dur_ns": end - s * US}
        for r, s in zip(ranks, starts, strict=True)
    ]
    match = [
        {
            "event_id": r,
            "rank": r,
            "match": 0,
            "seen_count": len(starts),
            "expected_count": len(starts) + (not complete),
        }
        for r in ranks
    ]
    moved = offset or [0] * len(starts)
    clock = [{"rank": r, "reference": 0, "offset_ns": moved[r] * US, "error_ns": error * US} for r in ranks]
    last = max(starts)
    wait = [{"event_id": r, "rank": r, "match": 0, "wait_ns": (last - s) * US, "exposed_ns": end - s * US,
             "exposed_wait_ns": (last - s) * US if exposed is None else exposed * US}
            for r, s in zip(ranks, starts, strict=True)]  # fmt: skip
    made = [
        build(n, v)
        for n, v in (("calls_on_device", rows), ("matches", match), ("clocks", clock), ("collectives", wait))
    ]
    return arrivals(*made, groups), made[3]


def test_the_last_rank_is_blamed_for_its_own_lateness_only():
    row = shared(100, 400, 900)[0].to_pylist()[0]
    assert (row["last_rank"], row["late_ns"], row["spread_ns"]) == (2, 500 * US, 800 * US)
    assert row["waited_ns"] == (800 + 500) * US and row["complete"]


@pytest.mark.parametrize(
    ("dim", "pipes", "inherited"),
    [
        ("pp", [(0, 1, 2)], True),
        ("pp", [(0, 1), (2, 3)], True),
        ("pp", [(0, 2), (1, 3)], True),
        ("pp", [(1, 4), (2, 5)], False),
        ("dp", [(0, 1, 2)], False),
        ("pp", [(0,), (1,), (2,)], False),
        ("pp", [], False),
    ],
)
def test_stages_of_a_pipeline_come_in_turn(dim, pipes, inherited):
    """Ranks 1 and 2 come last: nobody is late where they are different stages; copies of one stage are compared."""
    rows = [{"group": str(i), "size": len(p), "ranks": list(p), "dim": dim} for i, p in enumerate(pipes)]
    row = shared(100, 400, 900, groups=build("groups", rows))[0].to_pylist()[0]
    assert (row["last_rank"], row["inherited"]) == (2, inherited)


@pytest.mark.parametrize(("error", "last"), [(499, 2), (500, None), (501, None)])
def test_what_the_clocks_cannot_tell_is_nobodys(error, last):
    assert shared(100, 400, 900, error=error)[0]["last_rank"].to_pylist() == [last]


def test_clocks_are_corrected_first():
    assert shared(100, 400, 900, offset=[900, 0, 0])[0]["last_rank"].to_pylist() == [0]


def test_hidden_waiting_is_no_loss():
    table, waits = shared(100, 400, 900, exposed=20)
    assert table["exposed_late_ns"].to_pylist() == [20 * US]
    spans = build("spans", [{"rank": r, "step": 1} for r in range(3)])
    rows = late_ranks(table, waits, spans).to_pylist()
    assert [r["lost_ns"] for r in rows] == [0, 0, 20 * US] and rows[2]["blamed_ns"] == 500 * US
    assert [r["last_count"] for r in rows] == [0, 0, 1] and rows[2]["blamed_ratio"] == 1.0


def test_steps_that_are_not_analysed_do_not_count():
    table, waits = shared(100, 400, 900)
    rows = late_ranks(table, waits, build("spans", [{"rank": 0, "step": 2}])).to_pylist()
    assert rows == []


def test_missing_ranks_are_marked():
    assert shared(100, 900, complete=False)[0]["complete"].to_pylist() == [False]


def test_the_public_eight_rank_set(corpus: Path):
    """8 x V100, no metadata: rank 7 is last in 5 of 8 and owns 1.31 of 1.42 ms; ends differ by 1 to 7 us."""
    diagnosis = ask.run(corpus / "param/et_replay/tests/inputs/dlrm_kineto.tar.gz")
    calls = ask.rows(diagnosis, "arrivals")
    assert [(c["ranks_count"], c["complete"]) for c in calls] == [(8, True)] * 8
    assert {c["level"] for c in ask.rows(diagnosis, "matches")} == {"order"}
    assert 1_000 <= min(c["end_spread_ns"] for c in calls) <= max(c["end_spread_ns"] for c in calls) <= 7_000
    ranks = {r["rank"]: r for r in ask.rows(diagnosis, "late_ranks")}
    assert ranks[7]["last_count"] == 5
    assert sum(r["blamed_ns"] for r in ranks.values()) == pytest.approx(1_420_000, abs=10_000)
    assert ranks[7]["blamed_ns"] == pytest.approx(1_310_000, abs=5_000)
    assert ranks[7]["caused_wait_ns"] > 25 * ranks[7]["blamed_ns"]
    clocks = ask.rows(diagnosis, "clocks")
    assert all(c["offset_ns"] == 0 and c["error_ns"] <= 8_000 for c in clocks), "the spread is error, not skew"
    found = {f.rule: f for f in diagnosis.findings}
    assert found["late-rank"].ranks == (7,)
    assert not {"low-bus-bandwidth", "comm-share", "slow-boundary"} & set(found), "the network is not to blame"


@pytest.mark.parametrize("late", [0, 5, 13])
def test_an_injected_late_rank_is_named(late):
    faults = Faults(offset_ns={r: r * 1_000_000 for r in range(16)}, late_rank=late, late_ns=600_000)
    made = many.calls(calls(SHAPE, 20, 4, faults))
    matched = matches(made, many.members(SHAPE), many.files(SHAPE))
    clock = clocks(made, matched)
    kernels = build("kernels", [])
    whole = collectives(made, matched, clock, kernels, INGESTED["members"].empty())
    table = arrivals(made, matched, clock, whole)
    rows = late_ranks(table, whole, build("spans", [{"rank": 0, "step": None}])).to_pylist()
    assert max(rows, key=lambda r: r["blamed_ns"])["rank"] == late
    assert next(r for r in rows if r["rank"] == late)["blamed_ratio"] > 0.5
