"""Blocking calls: who asked, and the idle each one caused."""

import pytest

from diagnose.analyses import idle
from diagnose.analyses.syncs import syncs
from tests.analyses.rows import build, events, kernels, steps


def gaps(*rows):
    """Idle rows from (start, end[, cause])."""
    return build(
        idle.SCHEMA,
        [
            {"rank": 0, "step": 1, "ts_ns": a, "dur_ns": b - a, "cause": cause}
            for a, b, cause in ((*row, "sync")[:3] for row in rows)
        ],
    )


def call(name, start, end, **more):
    return {"kind": "runtime", "name": name, "ts_ns": start, "end": end, **more}


def op(name, start, end):
    return {"kind": "op", "name": name, "ts_ns": start, "end": end}


def launch(start, number):
    return call("cudaLaunchKernel", start, start + 2, launch_id=number)


def ran(start, end, number):
    return {"kind": "kernel", "name": "k", "ts_ns": start, "end": end, "device": 0, "stream": 7, "launch_id": number}


def rows_of(host, idle_rows, marks=None):
    table = syncs(
        events(host),
        kernels([{"ts_ns": 0, "end": 100, "launch_ns": 0}]),
        idle_rows,
        steps((0, 1000)) if marks is None else marks,
    )
    return [(r["name"], r["op"], r["dur_ns"], r["idle_ns"], r["step"]) for r in table.to_pylist()]


def test_item_is_named_and_pays_for_the_idle_after_it():
    host = [
        launch(0, 1), ran(5, 100, 1),
        op("aten::item", 10, 125), op("aten::_local_scalar_dense", 12, 120), call("cudaStreamSynchronize", 20, 110),
        launch(150, 2), ran(155, 200, 2),
    ]  # fmt: skip

    assert rows_of(host, gaps((100, 150))) == [("cudaStreamSynchronize", "aten::item", 90, 50, 1)]


def test_time_blocked_is_no_loss():
    host = [launch(0, 1), ran(5, 900, 1), call("cudaDeviceSynchronize", 10, 905)]

    assert rows_of(host, gaps()) == [("cudaDeviceSynchronize", None, 895, 0, 1)]


def test_idle_of_other_causes_is_not_its():
    host = [launch(0, 1), ran(5, 100, 1), call("cudaStreamSynchronize", 20, 110), launch(150, 2), ran(155, 200, 2)]

    assert rows_of(host, gaps((100, 150, "launch")))[0][3] == 0


def test_each_piece_goes_to_one_call():
    host = [
        launch(0, 1), ran(5, 100, 1), call("cudaStreamSynchronize", 20, 110),
        launch(150, 2), ran(155, 300, 2), call("cudaEventSynchronize", 160, 305),
        call("cudaStreamSynchronize", 310, 312),
        launch(350, 3), ran(355, 400, 3),
    ]  # fmt: skip

    found = rows_of(host, gaps((100, 130), (130, 155), (300, 355)))

    assert [(name, idle_ns) for name, _, _, idle_ns, _ in found] == [
        ("cudaStreamSynchronize", 55), ("cudaEventSynchronize", 55), ("cudaStreamSynchronize", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("cudaDeviceSynchronize", True), ("cudaStreamSynchronize", True), ("cudaEventSynchronize", True),
        ("hipDeviceSynchronize", True), ("hipStreamSynchronize", True), ("hipMemcpyWithStream", True),
        ("cudaMemcpy", True), ("cuStreamSynchronize", True), ("cuCtxSynchronize", True),
        ("cudaMemcpyAsync", False), ("cudaStreamWaitEvent", False), ("cudaEventRecord", False),
        ("hipMemcpyAsync", False),
    ],
)  # fmt: skip
def test_which_calls_block(name, blocks):
    host = [launch(0, 1), ran(5, 100, 1), call(name, 20, 110)]

    assert bool(rows_of(host, gaps())) is blocks


def test_a_watchdogs_thread_does_not_count():
    host = [launch(0, 1), ran(5, 100, 1), call("cudaEventSynchronize", 20, 110, thread=77)]

    assert rows_of(host, gaps()) == []


def test_innermost_operator_where_none_is_known_to_ask():
    host = [launch(0, 1), ran(5, 100, 1), op("my::solve", 10, 120), call("cudaStreamSynchronize", 20, 110)]

    assert rows_of(host, gaps())[0][1] == "my::solve"


def test_outside_all_steps():
    host = [launch(0, 1), ran(5, 100, 1), call("cudaDeviceSynchronize", 2000, 2100)]

    assert rows_of(host, gaps())[0][4] is None


def test_a_rank_without_device_work_has_none():
    host = events([op("aten::item", 0, 10), call("cudaStreamSynchronize", 2, 8)])

    assert syncs(host, kernels([]), gaps(), steps()).num_rows == 0


def test_operators_stand_in_where_calls_were_not_recorded():
    host = [op("aten::item", 10, 125), op("aten::_local_scalar_dense", 12, 120), ran(5, 100, None), ran(155, 200, None)]

    assert rows_of(host, gaps((100, 155))) == [("aten::item", "aten::item", 115, 55, 1)]


def test_a_job_without_a_device_has_none():
    host = events([op("aten::item", 0, 10), op("aten::mm", 20, 30)])
    work = kernels([{"ts_ns": 20, "end": 30, "device": None, "stream": None}])

    assert syncs(host, work, gaps(), steps()).num_rows == 0
