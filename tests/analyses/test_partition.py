"""The partition against a sweep over single nanoseconds, and its sums."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analyses._partition import partition
from diagnose.analyses.collectives import SCHEMA as COLLECTIVES
from diagnose.analyses.step_time import step_time
from diagnose.analyses.window_time import window_time
from diagnose.schema import COMM_DIMS, PARTS
from tests.analyses import rows
from tests.analyses.drawn import analysed, draw, parts_ms

work = st.lists(
    st.tuples(st.sampled_from(["compute", "comm", "copy", "unknown"]), st.integers(0, 40), st.integers(0, 9)),
    min_size=1,
    max_size=10,
)
NAMES = {"compute": "gemm", "comm": "ncclDevKernel_AllReduce", "copy": "Memcpy", "unknown": "mystery"}


def device_events(drawn, marks):
    found = [
        {"kind": "annotation", "name": f"ProfilerStep#{n}", "ts_ns": a, "end": b} for n, (a, b) in enumerate(marks)
    ]
    for lane, (kind, start, length) in enumerate(drawn):  # a stream each, so that any overlap may occur
        sort = "memcpy" if kind == "copy" else "kernel"
        name = NAMES[kind]
        found.append({"kind": sort, "name": name, "ts_ns": start, "dur_ns": length, "device": 0, "stream": lane})
    return rows.events(found)


@settings(max_examples=60, deadline=None)
@given(work, st.integers(0, 25), st.integers(1, 30))
def test_parts_agree_with_a_sweep_and_sum_to_step_and_window(drawn, first, length):
    marks = [(first, first + length), (first + length, first + 2 * length)]
    result = analysed(device_events(drawn, marks))
    order = ("compute", "comm", "unknown", "copy")
    names = {"compute": "compute", "comm": "other_comm", "unknown": "unclassified", "copy": "copy"}

    def swept(low, high):
        parts: dict[str, int] = {}
        for t in range(low, high):
            running = {kind for kind, start, long in drawn if start <= t < start + long}
            part = next((names[k] for k in order if k in running), "idle")
            parts[part] = parts.get(part, 0) + 1
        return parts

    for number, (low, high) in enumerate(marks):
        mine = [r for r in result["step_time"].to_pylist() if r["step"] == number]
        assert {r["part"]: r["dur_ns"] for r in mine} == swept(low, high)
    low, high = min(s for _, s, _ in drawn), max(s + n for _, s, n in drawn)
    assert {r["part"]: r["dur_ns"] for r in result["window_time"].to_pylist()} == swept(low, high)


pieces = st.lists(
    st.tuples(st.sampled_from(COMM_DIMS), st.integers(0, 30), st.integers(1, 9), st.integers(-1, 9)), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(pieces, st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=4))
def test_dimensions_have_precedence_and_waiting_is_split_from_transfer(drawn, computing):
    comm = [
        {"event_id": n, "rank": 0, "dim": d, "ts_ns": s, "dur_ns": k, "wait_ns": min(w, k) if w >= 0 else None}
        for n, (d, s, k, w) in enumerate(drawn)
    ]
    kernels = [{"event_id": 100 + n, "ts_ns": s, "dur_ns": k} for n, (s, k) in enumerate(computing)]
    kernels += [{"event_id": r["event_id"], "class": "comm", "ts_ns": r["ts_ns"], "dur_ns": r["dur_ns"]} for r in comm]
    from diagnose.analyses.idle import SCHEMA as IDLE

    sets = partition(rows.kernels(kernels), IDLE.empty(), rows.build(COLLECTIVES, comm))

    for t in range(45):
        found = [part for part in PARTS if any(a <= t < b for a, b in sets[part].tolist())]
        computes = any(s <= t < s + k for s, k in computing)
        running = {(d, _what(s, k, w, t)) for d, s, k, w in drawn if s <= t < s + k}
        ranked = [f"{d}_{what}" for d in COMM_DIMS for what in ("wait", "transfer", "comm") if (d, what) in running]
        assert found == (["compute"] if computes else ranked[:1])


def _what(start, length, wait, moment):
    if wait < 0:
        return "comm"
    return "wait" if moment < start + min(wait, length) else "transfer"


@settings(max_examples=60, deadline=None)
@given(work)
def test_exposed_time_of_collectives_sums_to_the_parts(drawn):
    result = analysed(device_events(drawn, []))
    exposed = sum(result["collectives"]["exposed_ns"].to_pylist())
    assert exposed == sum(r["dur_ns"] for r in result["window_time"].to_pylist() if r["part"].endswith("_comm"))
    for row in result["collectives"].to_pylist():
        assert 0 <= row["exposed_ns"] <= row["dur_ns"] - row["hidden_ns"]


def test_communication_under_compute_takes_no_time():
    result = draw("""
        step      |1111111111|
        7 compute |aaaaaa....|
        20 comm   |....bbbb..|
        21 comm   |.....cccc.|
    """)
    assert parts_ms(result["step_time"]) == {"compute": 6, "other_comm": 3, "idle": 1}
    assert [r["hidden_ns"] // 10**6 for r in result["collectives"].to_pylist()] == [2, 1]
    assert [r["exposed_ns"] // 10**6 for r in result["collectives"].to_pylist()] == [2, 1]


def test_nothing_in_nothing_out():
    result = analysed(rows.events([]))
    assert not step_time(*(result[n] for n in ("steps", "kernels", "idle", "collectives"))).num_rows
    assert not window_time(*(result[n] for n in ("kernels", "idle", "collectives"))).num_rows
