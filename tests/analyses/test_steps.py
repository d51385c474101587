"""When a step begins and ends on the device, and which marks make steps."""

from __future__ import annotations

import pytest

from diagnose.analyses.steps import SCHEMA, steps
from tests.analyses import rows
from tests.analyses.drawn import MS, draw, events, spans_ms


def found(text):
    return spans_ms(draw(text)["steps"])


def test_a_step_starts_at_its_mark_when_the_device_is_idle():
    assert found("""
        step      |1111122222|
        launch    |.a....c...|
        7 compute |..aa...cc.|
    """) == [(0, 5), (5, 10)]


def test_a_step_starts_where_older_work_ends_when_the_device_runs_behind():
    assert found("""
        step      |11112222......|
        launch    |abc.def.......|
        7 compute |.aaabbccddeeff|
    """) == [(0, 8), (8, 14)]


def test_own_kernel_before_older_work_ends_starts_the_step():
    assert found("""
        step      |11112222....|
        launch    |ab..d.......|
        7 compute |.aa..ddd....|
        20 comm   |...bbbbbb...|
    """) == [(0, 5), (5, 8)]


def test_a_copy_of_its_own_does_not_start_a_step():
    assert found("""
        step      |11112222....|
        launch    |ab..cd......|
        7 compute |.aabbbbbddd.|
        9 copy    |.....cc.....|
    """) == [(0, 8), (8, 11)]


def test_the_last_step_ends_with_its_mark_or_its_last_work():
    assert found("step |1111.|\nlaunch |a....|\n7 compute |.aa..|") == [(0, 4)]
    assert found("step |11...|\nlaunch |a....|\n7 compute |.aaa.|") == [(0, 4)]


def test_work_in_flight_from_before_the_recording_delays_the_first_step():
    result = draw("""
        step      |11112222......|
        launch    |ab..cd........|
        7 compute |zzzzzzaabbccdd|
    """)
    assert spans_ms(result["steps"]) == [(6, 10), (10, 14)]
    assert result["kernels"]["in_flight"].to_pylist() == [True, False, False, False, False]
    assert result["kernels"]["step"].to_pylist() == [None, 1, 1, 2, 2]


def test_marks_bound_the_steps_when_under_half_of_the_work_has_a_launch():
    """Two of five linked: the launches cannot say whose work the rest is."""
    drawing = """
        step      |11112222..|
        launch    |ab........|
        7 compute |..aabbxyz.|
    """
    assert found(drawing) == [(0, 4), (4, 8)]
    assert found(drawing.replace("yz", "..")) == [(0, 6), (6, 8)]


def test_an_absurd_duration_does_not_swallow_later_steps():
    """`a` is written to run to the end; its successor on the stream says otherwise."""
    table = rows.events(
        [
            {"kind": "annotation", "name": "ProfilerStep#1", "ts_ns": 0, "end": 10},
            {"kind": "annotation", "name": "ProfilerStep#2", "ts_ns": 10, "end": 20},
            *({"kind": "runtime", "name": "launch", "ts_ns": t, "end": t + 1, "launch_id": t} for t in (1, 2, 11)),
            {"kind": "kernel", "name": "a", "ts_ns": 2, "end": 9000, "launch_id": 1, "device": 0, "stream": 7},
            {"kind": "kernel", "name": "b", "ts_ns": 4, "end": 6, "launch_id": 2, "device": 0, "stream": 7},
            {"kind": "kernel", "name": "c", "ts_ns": 12, "end": 15, "launch_id": 11, "device": 0, "stream": 7},
        ]
    )
    result = steps(table).to_pylist()
    assert [(r["ts_ns"], r["ts_ns"] + r["dur_ns"]) for r in result] == [(0, 10), (10, 20)]


def mark(name, start, end, thread=1, kind="annotation"):
    return {"kind": kind, "name": name, "ts_ns": start, "end": end, "thread": thread}


def op(start, end, thread=1):
    return {"kind": "op", "name": "aten::mm", "ts_ns": start, "end": end, "thread": thread}


def numbers(*events_):
    result = steps(rows.events(list(events_)))
    return list(zip(result["step"].to_pylist(), result["host_ts_ns"].to_pylist(), strict=True))


def test_numbers_come_from_the_marks():
    assert numbers(mark("ProfilerStep#551", 0, 10), mark("ProfilerStep#552", 10, 20)) == [(551, 0), (552, 10)]


def test_old_recordings_keep_marks_among_operators():
    assert numbers(mark("ProfilerStep#5", 0, 10, kind="op"), mark("ProfilerStep#6", 10, 20, kind="op")) == [
        (5, 0),
        (6, 10),
    ]


def test_the_thread_with_the_longest_marks_counts():
    assert numbers(
        mark("ProfilerStep#1", 0, 10), mark("ProfilerStep#1", 2, 4, thread=2), mark("ProfilerStep#2", 10, 20)
    ) == [(1, 0), (2, 10)]


def test_a_mark_inside_a_mark_is_a_duplicate():
    assert numbers(mark("ProfilerStep#1", 0, 10), mark("ProfilerStep#1", 1, 9)) == [(1, 0)]


def test_a_restarted_counter_leaves_only_the_order():
    assert numbers(mark("ProfilerStep#1", 0, 10), mark("ProfilerStep#1", 10, 20)) == [(0, 0), (1, 10)]


@pytest.mark.parametrize("name", ["train_step", "step", "iteration", "Iteration", "training step"])
def test_repeated_annotations_named_like_steps_are_steps(name):
    result = steps(rows.events([op(0, 29), *(mark(name, t, t + 8) for t in (0, 10, 20))]))
    assert result["source"].to_pylist() == ["annotation"] * 3
    assert result["step"].to_pylist() == [0, 1, 2]


def test_numbered_annotations_keep_their_numbers():
    assert numbers(op(0, 29), *(mark(f"iteration {n}", t, t + 8) for n, t in ((5, 0), (6, 10), (7, 20)))) == [
        (5, 0), (6, 10), (7, 20),
    ]  # fmt: skip


def test_annotations_that_leave_room_are_no_steps():
    assert not steps(rows.events([op(0, 100), *(mark("forward", t, t + 3) for t in (0, 10, 20, 30))])).num_rows
    assert not steps(rows.events([op(0, 100), *(mark("train_step", t, t + 8) for t in (0, 10))])).num_rows, "an episode"
    assert not steps(rows.events([op(0, 30), *(mark("nccl:all_reduce", t, t + 10) for t in (0, 10, 20))])).num_rows


@pytest.mark.parametrize("name", ["get_batch", "micro_step", "optimizer_step", "load batch"])
def test_parts_of_a_step_named_after_it_are_no_steps(name):
    assert not steps(rows.events([op(0, 29), *(mark(name, t, t + 8) for t in (0, 10, 20))])).num_rows


def comm(letter, at):
    return {"kind": "kernel", "name": f"ncclDevKernel_{letter}", "ts_ns": at, "dur_ns": 2, "device": 0, "stream": 20}


def test_a_repeated_sequence_of_communication_is_a_guess():
    kernels_ = [
        comm(n, t) for t in (0, 100, 200) for n, t in (("AllGather", t), ("AllGather", t + 10), ("AllReduce", t + 50))
    ]
    result = steps(rows.events([*kernels_, comm("AllGather", 300)]))
    assert result["source"].to_pylist() == ["collectives"] * 3
    assert result["ts_ns"].to_pylist() == [0, 100, 200] and result["dur_ns"].to_pylist() == [100] * 3
    assert result["host_ts_ns"].null_count == 3


def test_one_kind_of_communication_marks_nothing():
    assert not steps(rows.events([comm("AllReduce", t) for t in range(0, 900, 100)])).num_rows


def test_a_cut_recording_leaves_its_last_step_incomplete():
    table = events("step |111222|\nlaunch |a..b..|\n7 compute |.aa.bb|")
    cut = rows.build("quality", [{"problem": "truncated", "rank": 0, "count": 1}])
    assert steps(table, quality=cut)["complete"].to_pylist() == [True, False]
    assert steps(table)["complete"].to_pylist() == [True, True]


def test_a_stub_at_the_end_is_incomplete():
    assert draw("step |1112..|\nlaunch |a.....|\n7 compute |.aa...|")["steps"]["complete"].to_pylist() == [True, False]


def test_a_lost_device_side_leaves_the_device_interval_unknown():
    result = draw("step |1111|\nlaunch |abc.|")
    assert result["steps"]["dur_ns"].to_pylist() == [None] and result["steps"]["host_dur_ns"].to_pylist() == [4 * MS]
    assert not result["kernels"].num_rows and not result["step_time"].num_rows


def test_no_events_no_steps():
    assert steps(rows.events([])).equals(SCHEMA.empty())
