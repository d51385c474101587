"""gc-pauses: the device idles while Python collects garbage."""

from __future__ import annotations

from diagnose.analyses.pauses import pauses
from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at

STACKS = [{"rank": 0, "kind": "stacks"}]


def job(gc_ns: int = 20 * MS, stacks: bool = False) -> Tables:
    pause = {"rank": 0, "step": 1, "cause": "gc", "dur_ns": gc_ns, "host": "gc.collect"}
    made = tables(spans=spans(step(compute_ns=100 * MS - gc_ns, gc_ns=gc_ns)), idle=[pause] if gc_ns else [])
    return seen(made, stacks)


def seen(made: Tables, stacks: bool) -> Tables:
    """The tables with `pauses` that follow from them."""
    cost = tables(profiler_cost=STACKS if stacks else [])["profiler_cost"]
    return made | {"pauses": pauses(made["spans"], made["idle"], cost)}


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
    quiet("gc-pauses", job(0, stacks=True))


def records(part: str = "host_gap", ranks: tuple[int, ...] = (0, 1, 2, 3), excess_ns: int = 180 * MS) -> Tables:
    """200 steps of 300 ms, in which each rank pauses once."""
    rows = [
        {"step": 40 * n, "kind": "single", "part": part, "rank": rank, "excess_ns": excess_ns, "excess_ratio": 0.6,
         "usual_ns": 300 * MS, "run_count": 200}
        for n, rank in enumerate(ranks)
    ]  # fmt: skip
    made = tables(spans=spans(step(compute_ns=300 * MS)), stalls=rows)
    return made | {"pauses": pauses(stalls=made["stalls"])}


def test_pauses_of_one_host_at_a_time_in_step_records() -> None:
    found = finding("gc-pauses", records(), min_share_ratio=0.01)

    assert (found.lost_ns, found.ranks, found.confidence_ratio) == (4 * 180 * MS // 200, (0, 1, 2, 3), 0.6)
    assert finding("gc-pauses", records("gc"), min_share_ratio=0.01).confidence_ratio == 0.95


def test_pauses_of_one_bad_host_or_of_input_are_no_garbage_collection() -> None:
    assert outcome("gc-pauses", records(ranks=(2, 2, 2, 2)), min_share_ratio=0.01).status == "skipped"
    assert outcome("gc-pauses", records("input"), min_share_ratio=0.01).status == "skipped"
