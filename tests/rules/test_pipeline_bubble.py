"""pipeline-bubble: idle time that the schedule itself causes, measured or by its law, never what else idles."""

from __future__ import annotations

import pytest

from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at
from tests.rules.pipeline_rows import bubble, healthy


def fires(**more):
    few = {"microbatches_count": 4, "dur_ns": 84 * MS, "bubble_ns": 36 * MS, "law_ratio": 36 / 84, "idle_ratio": 0.45}
    return tables(bubbles=[bubble(n, **few | more) for n in (1, 2)], spans=spans(step(compute_ns=90 * MS)))


def law(**more):
    row = {"measured": False, "analysed": True, "schedule": "1f1b", "stages_count": 8, "microbatches_count": 64}
    return tables(bubbles=[row | {"chunks_count": 1, "law_ratio": 7 / 71, "bubble_ratio": 7 / 71} | more])


def test_fires_with_what_was_measured_beside_the_law():
    found = finding("pipeline-bubble", fires(law_ratio=0.41))
    assert (found.lost_ns, found.lost_kind, found.severity) == (36 * MS, "simulated", "critical")
    assert "4 stages and 4 micro-batches (1f1b): 42.9 % of the step" in found.summary
    assert "measured over 2 steps; its law says 41.0 %, and 45.0 % of the pipeline is idle" in found.summary


def test_a_law_is_said_to_be_no_measurement():
    found = finding("pipeline-bubble", law(dur_ns=71 * MS))
    assert (found.lost_ns, found.lost_kind, found.severity) == (7 * MS, "bound", "warning")
    assert found.summary.endswith(
        "9.9 % of the step is the schedule's bubble, by its law for the printed settings, not measured"
    )
    assert found.evidence["share_ratio"] == pytest.approx(7 / 71)


def test_without_any_time_the_loss_is_unknown_and_the_share_is_not():
    assert finding("pipeline-bubble", law()).lost_ns == 0


def test_the_slowest_copy_of_the_pipeline_counts():
    slow = bubble(replica=1, dur_ns=900 * MS, bubble_ns=300 * MS)
    assert finding("pipeline-bubble", tables(bubbles=[bubble(), slow])).lost_ns == 300 * MS


def test_quiet_with_many_micro_batches_one_stage_or_only_uneven_stages():
    quiet("pipeline-bubble", tables(**healthy()))
    quiet("pipeline-bubble", law(stages_count=1, law_ratio=0.0, bubble_ratio=0.0))
    quiet("pipeline-bubble", tables(bubbles=[bubble(idle_ratio=0.5, imbalance_ns=300 * MS)]))


def test_warm_up_steps_do_not_count():
    quiet("pipeline-bubble", tables(bubbles=[bubble(), bubble(0, analysed=False, bubble_ns=400 * MS)]))


def test_an_unknown_schedule_is_judged_by_its_replay_alone():
    found = finding("pipeline-bubble", fires(schedule="unknown", law_ratio=None, law_ns=None))
    assert "no law is known for its order, and 45.0 %" in found.summary


def test_an_order_that_cannot_be_replayed_is_no_verdict():
    unknown = bubble(schedule="unknown", bubble_ns=None, bubble_ratio=None, law_ratio=None, law_ns=None)
    assert outcome("pipeline-bubble", tables(bubbles=[unknown])).status == "skipped"


def test_exactly_at_the_threshold():
    turns_exactly_at("pipeline-bubble", fires(dur_ns=100 * MS, bubble_ns=25 * MS), min_share_ratio=0.25)
