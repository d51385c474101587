"""Why the device waited: each cause, its precedence, and where the host's side of a gap ends."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analyses.idle import SCHEMA
from tests.analyses import rows
from tests.analyses.drawn import MS, analysed, draw


def causes(text):
    return said(draw(text)["idle"])


def said(table, unit=MS):
    return [(r["cause"], r["ts_ns"] / unit, (r["ts_ns"] + r["dur_ns"]) / unit) for r in table.to_pylist()]


def test_only_idle_before_the_launch_call_is_the_hosts():
    assert causes("""
        launch    |a.....b....|
        7 compute |.aa.....bb.|
    """) == [("launch", 3, 6), ("idle", 6, 8)]


def test_a_launch_in_time_leaves_the_gap_unexplained():
    assert causes("launch    |ab......|\n7 compute |.aa...bb|") == [("idle", 3, 6)]


def test_the_loader_takes_what_it_overlaps_before_the_launch():
    assert causes("""
        launch    |a.......b..|
        loader    |..cccc.....|
        7 compute |.aa......bb|
    """) == [("input", 3, 6), ("launch", 6, 8), ("idle", 8, 9)]


def test_a_loader_while_work_is_queued_costs_nothing():
    assert causes("launch    |ab.......|\nloader    |..cccccc.|\n7 compute |.aa...bbb|") == [("idle", 3, 6)]


def test_a_loader_on_a_thread_that_launches_nothing_does_not_count():
    result = draw("launch    |a.......b..|\n7 compute |.aa......bb|")
    table = rows.events(
        [
            {"kind": "runtime", "name": "launch", "ts_ns": 0, "end": 1, "launch_id": 1},
            {"kind": "runtime", "name": "launch", "ts_ns": 8, "end": 9, "launch_id": 2},
            {"kind": "annotation", "name": "enumerate(DataLoader)#x.__next__", "ts_ns": 2, "end": 8, "thread": 77},
            {"kind": "kernel", "name": "a", "ts_ns": 1, "end": 3, "launch_id": 1, "device": 0, "stream": 7},
            {"kind": "kernel", "name": "b", "ts_ns": 9, "end": 11, "launch_id": 2, "device": 0, "stream": 7},
        ]
    )
    assert said(analysed(table)["idle"], 1) == said(result["idle"]) == [("launch", 3, 8), ("idle", 8, 9)]


def test_a_synchronise_owns_the_gap_up_to_the_next_kernels_launch():
    assert causes("""
        launch    |a.......b..|
        sync      |.sss.......|
        7 compute |.aa......bb|
    """) == [("sync", 3, 8), ("idle", 8, 9)]


def test_item_is_a_synchronise_too():
    assert causes("launch    |a.......b..|\nitem      |.sss.......|\n7 compute |.aa......bb|")[0] == ("sync", 3, 8)


def test_a_synchronise_that_found_the_device_idle_did_not_cause_the_gap():
    assert causes("""
        launch    |a.......b..|
        sync      |.....ss....|
        7 compute |.aa......bb|
    """) == [("launch", 3, 8), ("idle", 8, 9)]


def test_after_the_first_kernel_the_host_is_merely_late():
    assert causes("""
        launch    |a....b....c...|
        sync      |.sss..........|
        7 compute |.aa...bb...ccc|
    """) == [("sync", 3, 5), ("idle", 5, 6), ("launch", 8, 10), ("idle", 10, 11)]


def test_copies_do_not_end_what_a_synchronise_began():
    assert causes("""
        launch    |a....b....c...|
        sync      |.sss..........|
        7 compute |.aa........ccc|
        9 copy    |......bb......|
    """) == [("sync", 3, 5), ("idle", 5, 6), ("sync", 8, 10), ("idle", 10, 11)]


def test_precedence_input_gc_alloc_sync_launch():
    assert causes("""
        launch    |a............b..|
        sync      |.sss............|
        alloc     |.....mmmmmmm....|
        gc        |.....gggg.......|
        loader    |.....ll.........|
        7 compute |.aa...........bb|
    """) == [("sync", 3, 5), ("input", 5, 7), ("gc", 7, 9), ("alloc", 9, 12), ("sync", 12, 13), ("idle", 13, 14)]


def test_without_launches_a_cause_needs_an_event_that_overlaps():
    assert causes("""
        step      |1111111111111|
        sync      |sss..........|
        loader    |.......ll....|
        7 compute |aa...bb...cc.|
    """) == [("sync", 2, 5), ("input", 7, 9), ("idle", 9, 10), ("idle", 12, 13)]


def test_the_end_of_the_last_step_belongs_to_what_the_host_did_then():
    assert causes("""
        step      |1111111|
        launch    |a......|
        sync      |.sss...|
        7 compute |.aa....|
    """) == [("idle", 0, 1), ("sync", 3, 7)]


def test_the_stall_before_the_first_kernel_is_in_its_step():
    result = draw("""
        step      |11111111222222222|
        launch    |.....a.......b...|
        loader    |.llll...llll.....|
        7 compute |......aa......bb.|
    """)
    rows_ = [(r["step"], r["cause"], r["ts_ns"] // MS, r["dur_ns"] // MS) for r in result["idle"].to_pylist()]
    assert rows_ == [
        (1, "launch", 0, 1), (1, "input", 1, 4), (1, "idle", 5, 1),
        (2, "input", 8, 4), (2, "launch", 12, 1), (2, "idle", 13, 1), (2, "idle", 16, 1),
    ]  # fmt: skip


def test_blame_and_the_kernel_that_ends_the_gap_are_named():
    row = draw("launch    |a.......b..|\nsync      |.sss.......|\n7 compute |.aa......bb|")["idle"].to_pylist()[0]
    assert row["host"] == "cudaStreamSynchronize" and row["before"] == "ampere_sgemm_b"


def test_a_job_without_a_device_waits_for_no_launch():
    table = rows.events(
        [
            {"kind": "op", "name": "aten::item", "ts_ns": 0, "end": 5},
            {"kind": "annotation", "name": "enumerate(DataLoader)#x.__next__", "ts_ns": 6, "end": 8},
            {"kind": "op", "name": "aten::mm", "ts_ns": 9, "end": 12},
        ]
    )
    assert said(analysed(table)["idle"], 1) == [("idle", 5, 6), ("input", 6, 8), ("idle", 8, 9)]


drawn = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(0, 9)), min_size=1, max_size=7)
host = st.lists(
    st.tuples(st.sampled_from(["loader", "sync", "alloc"]), st.integers(0, 30), st.integers(1, 9)), max_size=4
)
NAMES = {
    "loader": ("annotation", "get_batch"),
    "sync": ("runtime", "cudaDeviceSynchronize"),
    "alloc": ("runtime", "cudaFree"),
}


@settings(max_examples=80, deadline=None)
@given(drawn, host)
def test_rows_are_disjoint_and_exactly_the_time_without_work(work, calls):
    events = []
    for number, (launch, delay, length) in enumerate(work, 1):
        events.append({"kind": "runtime", "name": "launch", "ts_ns": launch, "dur_ns": 1, "launch_id": number})
        start = launch + delay
        events.append(
            {"kind": "kernel", "name": "gemm", "ts_ns": start, "dur_ns": length, "launch_id": number, "stream": number}
        )
    events += [{"kind": NAMES[k][0], "name": NAMES[k][1], "ts_ns": s, "dur_ns": n} for k, s, n in calls]
    found = analysed(rows.events(events))
    cells = [t for r in found["idle"].to_pylist() for t in range(r["ts_ns"], r["ts_ns"] + r["dur_ns"])]
    starts = [launch + delay for launch, delay, _ in work]
    busy = {t for s, (_, _, n) in zip(starts, work, strict=True) for t in range(s, s + n)}
    steps = [(r["ts_ns"], r["ts_ns"] + r["dur_ns"]) for r in found["steps"].to_pylist()]  # ranges that tile become some
    first = min([*starts, *(start for start, _ in steps)])
    last = max([*(s + n for s, (_, _, n) in zip(starts, work, strict=True)), *(end for _, end in steps)])
    assert sorted(cells) == [t for t in range(first, last) if t not in busy]


def test_ranges_that_tile_the_recording_are_steps_and_so_is_what_they_idle():
    table = rows.events(
        [
            {"kind": "kernel", "name": "gemm", "ts_ns": 0, "end": 0},
            *({"kind": "annotation", "name": "get_batch", "ts_ns": s, "end": s + 1} for s in range(3)),
        ]
    )
    found = analysed(table)
    assert found["steps"].num_rows == 3
    assert sum(found["idle"]["dur_ns"].to_pylist()) == 3


def test_no_work_no_idle():
    assert analysed(rows.events([]))["idle"].equals(SCHEMA.empty())
