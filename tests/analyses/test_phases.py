"""Forward, backward and optimizer on the device."""

from diagnose.analyses import collectives
from diagnose.analyses.phases import phases
from tests.analyses.rows import build, kernels, steps


def table(work, comm=()):
    rows = phases(kernels(work), steps((0, 100)), build(collectives.SCHEMA, [{"rank": 0, **row} for row in comm]))
    return [(r["step"], r["phase"], r["busy_ns"], r["exposed_comm_ns"], r["span_ns"]) for r in rows.to_pylist()]


def test_each_phase_is_a_union():
    work = [
        {"phase": "forward", "ts_ns": 0, "end": 20},
        {"phase": "forward", "ts_ns": 10, "end": 30, "stream": 8},
        {"phase": "backward", "ts_ns": 30, "end": 40},
        {"phase": "backward", "ts_ns": 35, "end": 90, "class": "comm"},
        {"phase": None, "ts_ns": 95, "end": 99, "class": "copy"},
        {"phase": "forward", "ts_ns": 100, "end": 105, "step": 2},
        {"phase": "forward", "ts_ns": 200, "end": 205, "step": None},
    ]

    assert table(work, [{"phase": "backward", "step": 1, "exposed_ns": 50}]) == [
        (1, "forward", 30, 0, 30),
        (1, "backward", 10, 50, 60),
        (1, "unknown", 0, 0, 4),
        (2, "forward", 5, 0, 5),
    ]


def test_empty():
    assert table([]) == []
