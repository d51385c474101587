"""What the profiler cost, and what cannot be measured."""

from diagnose.analyses.profiler_cost import profiler_cost
from tests.analyses.rows import build, events, files, steps


def rows_of(host, marks=None, settings=()):
    found = profiler_cost(events(host), marks or steps((0, 50), (50, 100)), build("settings", list(settings)), files())
    return [(r["kind"], r["count"], r["dur_ns"], r["share_ratio"]) for r in found.to_pylist()]


WORK = {"kind": "kernel", "name": "k", "ts_ns": 0, "end": 100}


def test_overhead_is_a_union_and_its_share_counts_what_lies_in_the_window():
    host = [
        WORK,
        {"kind": "overhead", "name": "Buffer Flush", "ts_ns": 90, "end": 130},
        {"kind": "overhead", "name": "Instrumentation", "ts_ns": 10, "end": 30},
        {"kind": "overhead", "name": "Instrumentation", "ts_ns": 20, "end": 50},
    ]

    assert rows_of(host) == [("Buffer Flush", 1, 40, 0.1), ("Instrumentation", 2, 40, 0.4)]


def test_costs_that_cannot_be_measured_have_no_time():
    host = [
        WORK,
        {"kind": "python", "name": "a.py(1): f", "ts_ns": 0},
        {"kind": "instant", "name": "[memory]", "ts_ns": 0},
    ]

    assert rows_of(host, steps((0, 100))) == [
        ("stacks", 1, None, None), ("memory", 1, None, None), ("one_step", 1, None, None),
    ]  # fmt: skip


def test_flags_count_without_events():
    assert rows_of([WORK], settings=[{"key": "profiler.with_stack", "value": "1"}]) == [("stacks", 0, None, None)]
    assert rows_of([WORK], settings=[{"key": "profiler.with_stack", "value": "1", "rank": 3}]) == []


def test_a_clean_recording():
    assert rows_of([WORK]) == []
    assert rows_of([]) == []
