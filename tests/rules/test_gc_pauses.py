"""gc-pauses: the device idles while Python collects garbage."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at

STACKS = [{"rank": 0, "kind": "stacks"}]


def job(gc_ns: int = 20 * MS) -> Tables:
    pause = {"rank": 0, "step": 1, "cause": "gc", "dur_ns": gc_ns, "host": "gc.collect"}
    return tables(spans=spans(step(compute_ns=100 * MS - gc_ns, gc_ns=gc_ns)), idle=[pause] if gc_ns else [])


def fires() -> Tables:
    return job()


def test_fires() -> None:
    found = finding("gc-pauses", fires())
    assert (found.lost_ns, found.evidence["pauses_count"], found.symptom) == (20 * MS, 1, "drifting_throughput")


def test_quiet_exactly_at_a_fiftieth_of_the_step() -> None:
    quiet("gc-pauses", job(2 * MS))
    finding("gc-pauses", job(2 * MS + 1))


def test_thresholds() -> None:
    turns_exactly_at("gc-pauses", fires(), min_share_ratio=0.2)


def test_not_seen_is_not_clear_unless_stacks_were_recorded() -> None:
    assert outcome("gc-pauses", job(0)).status == "skipped"
    quiet("gc-pauses", job(0) | {"profiler_cost": tables(profiler_cost=STACKS)["profiler_cost"]})
