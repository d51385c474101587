"""stage-imbalance: the stage that sets the pace, and what an even split would win."""

from __future__ import annotations

import pytest

from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at
from tests.rules.pipeline_rows import bubble, healthy, stage


def fires(heavy: int = 3, copies: int = 1, **more):
    rows = [stage(n, 15 * MS if n == heavy else 12 * MS, 12 * MS, replicas_count=copies) for n in range(4)]
    given = healthy() | {"stages": rows, "bubbles": [bubble(imbalance_ns=130 * MS, dur_ns=1040 * MS, **more)]}
    return tables(**given, spans=spans(step(compute_ns=1100 * MS)))


def test_fires_on_the_last_stage_and_says_what_it_has_on_top():
    found = finding("stage-imbalance", fires())
    assert (found.lost_ns, found.lost_kind, found.ranks) == (130 * MS, "simulated", (3,))
    assert "stage 3 computes 15.0 ms for a micro-batch, the others 12.0 ms on average (25.0 % more)" in found.summary
    assert "it is the last one" in found.summary
    assert found.evidence["share_ratio"] == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("heavy", "copies", "words"),
    [(0, 1, "the first one"), (2, 1, "a slow GPU there would look the same"), (2, 4, "")],
)
def test_what_else_it_could_be_depends_on_the_stage_and_its_copies(heavy: int, copies: int, words: str):
    found = finding("stage-imbalance", fires(heavy, copies))
    assert found.evidence["stage"] == heavy
    assert words in found.summary
    assert found.confidence_ratio == (0.8 if copies == 1 else 1.0)
    assert found.summary.endswith(")") == (words == "")


def test_ranks_that_nobody_knows_are_not_listed():
    given = fires()
    rows = [row | {"rank": -1 - row["stage"]} for row in given["pipeline"].to_pylist()]
    assert finding("stage-imbalance", given | {"pipeline": tables(pipeline=rows)["pipeline"]}).ranks == ()


def test_quiet_on_even_stages_and_where_an_uneven_one_costs_nothing():
    quiet("stage-imbalance", tables(**healthy()))
    quiet("stage-imbalance", fires(heavy=3) | {"bubbles": tables(bubbles=[bubble(imbalance_ns=0)])["bubbles"]})
    quiet("stage-imbalance", fires(heavy=3) | {"bubbles": tables(bubbles=[bubble(imbalance_ns=-5 * MS)])["bubbles"]})


def test_settings_alone_measure_nothing():
    alone = tables(bubbles=[{"measured": False, "analysed": True, "stages_count": 8, "law_ratio": 0.3}])
    assert outcome("stage-imbalance", alone).status == "skipped"


def test_exactly_at_each_threshold():
    turns_exactly_at("stage-imbalance", fires(), min_share_ratio=0.125, min_more_ratio=0.25)
