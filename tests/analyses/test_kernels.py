"""Device work: whose step, whose launch, which duration is believed."""

from __future__ import annotations

import pytest

from diagnose.analyses.kernels import SCHEMA
from tests.analyses import rows
from tests.analyses.drawn import MS, analysed, draw


def by_name(table, column):
    return dict(zip(table["name"].to_pylist(), table[column].to_pylist(), strict=True))


def kernel(name, start, end, **more):
    return {"kind": "kernel", "name": name, "ts_ns": start, "end": end, "device": 0, "stream": 7, **more}


def found(*events):
    return analysed(rows.events(list(events)))["kernels"]


def test_the_launching_call_tells_the_step_even_where_the_device_runs_behind():
    result = draw("""
        step      |1122......|
        launch    |abcd......|
        7 compute |.aabbccdd.|
        9 copy    |.......z..|
    """)
    steps = by_name(result["kernels"], "step")
    assert [steps[f"ampere_sgemm_{k}"] for k in "abcd"] == [1, 1, 2, 2]
    assert steps["Memcpy HtoD z"] == 2, "no launch of its own: the step whose interval holds its start"


def test_work_launched_before_the_first_mark_or_after_the_last_has_no_step():
    result = draw("""
        step      |..11....|
        launch    |a.b..c..|
        7 compute |.aabbbcc|
    """)
    assert result["kernels"]["step"].to_pylist() == [None, 1, None]


def test_many_kernels_may_share_a_launch():
    result = found(
        {"kind": "runtime", "name": "cudaGraphLaunch", "ts_ns": 0, "end": 2, "launch_id": 5},
        *(kernel(f"k{n}", 10 * n, 10 * n + 5, launch_id=5) for n in (1, 2, 3)),
    )
    assert result["launch_ns"].to_pylist() == [0, 0, 0] and result["graph"].to_pylist() == [True] * 3


def test_correlation_zero_or_none_links_nothing():
    result = found(
        {"kind": "runtime", "name": "hipExtLaunchKernel", "ts_ns": 0, "end": 2, "launch_id": 0},
        {"kind": "runtime", "name": "hipExtLaunchKernel", "ts_ns": 3, "end": 4, "launch_id": None},
        kernel("a", 10, 20, launch_id=0), kernel("b", 30, 40, launch_id=None),
    )  # fmt: skip
    assert result["launch_ns"].to_pylist() == [None, None]
    assert result["in_flight"].to_pylist() == [None, None], "without any launch nothing says what was in flight"


def test_the_same_correlation_in_another_file_is_another_launch():
    result = found(
        {"kind": "runtime", "name": "launch", "ts_ns": 0, "end": 1, "launch_id": 5, "file": 0},
        {"kind": "runtime", "name": "launch", "ts_ns": 4, "end": 5, "launch_id": 5, "file": 1},
        kernel("a", 10, 12, launch_id=5, file=0), kernel("b", 14, 16, launch_id=5, file=1),
    )  # fmt: skip
    assert by_name(result, "launch_ns") == {"a": 0, "b": 4}


def test_a_call_after_the_work_did_not_launch_it():
    result = found(
        {"kind": "runtime", "name": "launch", "ts_ns": 50, "end": 51, "launch_id": 5}, kernel("a", 10, 12, launch_id=5)
    )
    assert result["launch_ns"].to_pylist() == [None]


def serial(*lengths, name="gemm", gap=0):
    """Kernels one after the other on one stream."""
    start, result = 0, []
    for length in lengths:
        result.append(kernel(name, start * MS, (start + length) * MS))
        start += length + gap
    return result


def cut(result):
    return [
        (r["name"], r["recorded_ns"] / MS, r["dur_ns"] / MS)
        for r in result.to_pylist()
        if r["recorded_ns"] != r["dur_ns"]
    ]


@pytest.mark.parametrize(("length", "expected"), [(10, []), (11, [("gemm", 11.0, 1.0)])])
def test_ten_medians_are_believed_more_are_not(length, expected):
    """The long one overruns its successor, which starts after 1 ms; the recording goes on long after."""
    events = [*serial(1, 1, 1, 1, 1), kernel("gemm", 5 * MS, (5 + length) * MS), kernel("norm", 6 * MS, 7 * MS)]
    assert cut(found(*events, kernel("norm", 90 * MS, 91 * MS))) == expected


def test_a_long_kernel_that_overruns_nobody_is_believed():
    assert not cut(found(*serial(1, 1, 1, 1), kernel("gemm", 4 * MS, 90 * MS), kernel("norm", 90 * MS, 91 * MS)))


def test_a_duration_beyond_its_step_is_cut_at_the_successor():
    mark = {"kind": "annotation", "name": "ProfilerStep#0", "ts_ns": 0, "end": 20 * MS}
    result = found(mark, kernel("gemm", 0, MS), kernel("copy_kernel", MS, 900 * MS), kernel("gemm", 2 * MS, 3 * MS))
    assert cut(result) == [("copy_kernel", 899.0, 1.0)]


def test_small_overlaps_at_the_end_of_a_step_are_real():
    """Programmatic dependent launch: the successor starts a little before its predecessor ends."""
    mark = {"kind": "annotation", "name": "ProfilerStep#0", "ts_ns": 0, "end": 5 * MS}
    assert not cut(found(mark, kernel("a", 0, 6 * MS), kernel("b", 4 * MS, 9 * MS)))


def test_other_streams_are_no_successors():
    assert not cut(found(*serial(1, 1, 1), kernel("gemm", 3 * MS, 80 * MS), kernel("norm", 4 * MS, 5 * MS, stream=8)))


def test_synchronisations_and_projections_are_not_work():
    result = found(
        kernel("gemm", 0, 10),
        {"kind": "sync", "name": "Event Sync", "ts_ns": 5, "end": 90, "device": 0, "stream": -1},
        {"kind": "device_annotation", "name": "nccl:all_reduce", "ts_ns": 0, "end": 90, "device": 0, "stream": 20},
    )
    assert result["name"].to_pylist() == ["gemm"]


def test_unknown_kernels_stay_unclassified_unless_a_computing_operator_launched_one():
    op = {"kind": "op", "name": "aten::nll_loss", "ts_ns": 0, "end": 9}
    call = {"kind": "runtime", "name": "cudaLaunchKernel", "ts_ns": 2, "end": 3, "launch_id": 7}
    result = found(op, call, kernel("mystery", 10, 20, launch_id=7), kernel("mystery", 0, 1), kernel("riddle", 30, 40))
    assert result["class"].to_pylist() == ["compute", "compute", "unclassified"]


def test_a_triton_kernel_is_known_by_the_operator_named_after_it():
    op = {"kind": "op", "name": "XXT_kernel_0", "ts_ns": 0, "end": 9}
    call = {"kind": "runtime", "name": "cuLaunchKernel", "ts_ns": 2, "end": 3, "launch_id": 7}
    assert found(op, call, kernel("XXT_kernel", 10, 20, launch_id=7))["class"].to_pylist() == ["compute"]


def test_a_collective_record_beats_the_name():
    events = rows.events([kernel("mystery", 0, 10), kernel("riddle", 20, 30)])
    calls = rows.build("calls", [{"event_id": 1, "rank": 0, "op": "all_reduce", "source": "kernel"}])
    assert by_name(analysed(events, calls=calls)["kernels"], "class") == {"mystery": "unclassified", "riddle": "comm"}


def test_peer_copies_for_a_collective_are_communication_others_copies():
    op = {"kind": "op", "name": "symm_mem::all_gather", "ts_ns": 0, "end": 9}
    call = {"kind": "runtime", "name": "cudaMemcpyPeerAsync", "ts_ns": 2, "end": 3, "launch_id": 7}
    peer = {**kernel("Memcpy PtoP (Device -> Device)", 10, 20, launch_id=7), "kind": "memcpy"}
    assert found(op, call, peer)["class"].to_pylist() == ["comm"]
    assert found(call, peer)["class"].to_pylist() == ["copy"]


def test_users_add_patterns():
    settings = rows.build(
        "settings", [{"key": "classify.comm", "value": "^riddle"}, {"key": "classify.compute", "value": "myst"}]
    )
    result = analysed(rows.events([kernel("mystery", 0, 10), kernel("riddle", 20, 30)]), settings=settings)["kernels"]
    assert by_name(result, "class") == {"mystery": "compute", "riddle": "comm"}


def host(kind, name, start, end, thread=1):
    return {"kind": kind, "name": name, "ts_ns": start, "end": end, "thread": thread}


def test_without_a_device_operators_compute_except_while_they_wait():
    result = found(
        host("op", "aten::add", 0, 100), host("op", "_c10d_functional::wait_tensor", 20, 80),
        host("op", "aten::mul", 120, 130), host("annotation", "gloo:all_reduce", 10, 70, thread=2),
        host("op", "aten::copy_", 30, 40, thread=2),
    )  # fmt: skip
    assert [(r["name"], r["class"], r["ts_ns"], r["ts_ns"] + r["dur_ns"]) for r in result.to_pylist()] == [
        ("aten::add", "compute", 0, 20),
        ("gloo:all_reduce", "comm", 10, 70),
        ("aten::add", "compute", 80, 100),
        ("aten::mul", "compute", 120, 130),
    ]


def test_gloo_work_that_is_recorded_as_an_operator_communicates():
    result = found(host("op", "aten::add", 0, 100), host("op", "gloo:all_reduce", 120, 150, thread=2))
    assert [(r["name"], r["class"]) for r in result.to_pylist()] == [
        ("aten::add", "compute"),
        ("gloo:all_reduce", "comm"),
    ]


@pytest.mark.parametrize("trace_of_a_gpu", [
    host("runtime", "cudaLaunchKernel", 1, 2), host("annotation", "nccl:all_reduce", 1, 2),
    host("op", "record_param_comms", 1, 2),
])  # fmt: skip
def test_host_operators_are_no_stand_in_for_a_lost_device(trace_of_a_gpu):
    assert found(host("op", "aten::mm", 0, 10), trace_of_a_gpu).equals(SCHEMA.empty())
    assert found(host("op", "aten::mm", 0, 10)).num_rows == 1


def test_ranks_do_not_mix():
    result = found(
        {"kind": "runtime", "name": "launch", "ts_ns": 0, "end": 1, "launch_id": 5, "rank": 3},
        kernel("a", 2, 4, launch_id=5, rank=3), kernel("b", 2, 4, launch_id=5, rank=4),
    )  # fmt: skip
    assert result["rank"].to_pylist() == [3, 4] and result["launch_ns"].to_pylist() == [0, None]
