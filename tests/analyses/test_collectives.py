"""What is said about communication, where it comes from, and why it was not hidden."""

from __future__ import annotations

import pytest

from diagnose.analyses._operations import bus_factor, operation
from diagnose.analyses.collectives import SCHEMA
from tests.analyses import rows
from tests.analyses.drawn import analysed, draw

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def kernel(start, end, name=NCCL, **more):
    return {"kind": "kernel", "name": name, "ts_ns": start, "end": end, "device": 0, "stream": 20, **more}


def record(start, end, **more):
    return {"kind": "op", "name": "record_param_comms", "ts_ns": start, "end": end, **more}


def launch(start, number):
    return {"kind": "runtime", "name": "cudaLaunchKernelExC", "ts_ns": start, "dur_ns": 1, "launch_id": number}


def found(events, calls=(), **tables):
    """Rows of `collectives`; a call names its event by index and takes its time from there."""
    timed = rows.events(events)
    table = timed.to_pylist()
    always = {"rank": 0, "file": 0, "group": "0", "group_size": 8, "source": "record_param_comms", "dtype": "bfloat16"}
    said = [
        {**always, "ts_ns": table[c["event_id"]]["ts_ns"], "dur_ns": table[c["event_id"]]["dur_ns"], **c} for c in calls
    ]
    given = {"calls": rows.build("calls", said)} if said else {}
    return analysed(timed, **given, **tables)["collectives"].to_pylist()


def told(row):
    return row["op"], row["size_bytes"], row["evidence"]


def test_the_kernels_own_record_comes_first():
    row = found(
        [kernel(0, 1000)], [{"event_id": 0, "op": "all_reduce", "size_bytes": 800, "source": "kernel", "seq": 4}]
    )[0]
    assert told(row) == ("all_reduce", 800, "kernel_args")
    assert (row["group"], row["seq"], row["dtype"], row["group_size"]) == ("0", 4, "bfloat16", 8)


def test_a_record_is_found_by_external_id():
    events = [record(0, 5, external_id=31), kernel(10, 20, external_id=31), kernel(30, 40, external_id=77)]
    result = found(events, [{"event_id": 0, "op": "all_gather", "size_bytes": 64}])
    assert told(result[0]) == ("all_gather", 64, "external_id")
    assert told(result[1]) == ("all_reduce", None, "name") and result[1]["busbw_bytes_per_s"] is None


def test_a_record_open_at_the_launch_is_the_kernels():
    events = [record(0, 10), launch(4, 9), kernel(20, 30, launch_id=9), record(40, 50, thread=2), launch(44, 8)]
    result = found([*events, kernel(60, 70, launch_id=8)], [
        {"event_id": 0, "op": "broadcast", "size_bytes": 64}, {"event_id": 3, "op": "all_gather", "size_bytes": 32},
    ])  # fmt: skip
    assert told(result[0]) == ("broadcast", 64, "launch")
    assert told(result[1]) == ("all_reduce", None, "name"), "a record on another thread launched nothing here"


def test_operators_then_annotations_tell_the_operation_only():
    op = {"kind": "op", "name": "c10d::alltoall_base_", "ts_ns": 0, "end": 10}
    result = found([op, launch(4, 9), kernel(20, 30, SEND_RECV, launch_id=9)])
    assert told(result[0]) == ("all_to_all", None, "launch")
    host = {"kind": "annotation", "name": "nccl:reduce_scatter", "ts_ns": 0, "end": 10}
    assert told(found([host, launch(4, 9), kernel(20, 30, launch_id=9)])[0]) == ("reduce_scatter", None, "annotation")
    device = {"kind": "device_annotation", "name": "nccl:all_to_all", "ts_ns": 19, "end": 31, "device": 0, "stream": 20}
    assert told(found([device, kernel(20, 30, SEND_RECV)])[0]) == ("all_to_all", None, "annotation")


@pytest.mark.parametrize(("name", "op"), [
    (NCCL, "all_reduce"),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
    (SEND_RECV, "p2p"),
    ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(...)", "combine"),
])  # fmt: skip
def test_names_tell_where_nothing_else_does(name, op):
    assert told(found([kernel(0, 10, name)])[0]) == (op, None, "name")


def test_send_and_receive_serve_all_to_all_as_well():
    """In a job that exchanges and never sends, an undocumented SendRecv kernel is an exchange; with both, unknown."""
    exchange = {"event_id": 0, "op": "all_to_all", "size_bytes": 64}
    assert found([record(0, 5), kernel(10, 20, SEND_RECV)], [exchange])[0]["op"] == "all_to_all"
    both = [exchange, {"event_id": 1, "op": "send", "size_bytes": 64}]
    assert found([record(0, 5), record(6, 8), kernel(10, 20, SEND_RECV)], both)[0]["op"] == "unknown"


def test_experts_name_their_dimension():
    assert found([kernel(0, 10, "void deep_ep::internode_ll::dispatch<true>(...)")])[0]["dim"] == "ep"
    assert found([kernel(0, 10)])[0]["dim"] == "other"


def coalesced(*extra, calls=3, seq=6, op="all_reduce", last=None, annotation=True):
    around = [{"kind": "annotation", "name": "nccl:coalesced", "ts_ns": 0, "end": 60}] if annotation else []
    events = [*around, *(record(10 * n + 2, 10 * n + 8, external_id=700 + n) for n in range(1, calls + 1))]
    kernel_ = kernel(100, 200, external_id=last or 700 + calls)
    said = [
        {"event_id": len(around) + n, "op": op, "size_bytes": 1000 * (n + 1), "seq": seq, "peer": n}
        for n in range(calls)
    ]
    return found([*events, kernel_, *extra], said)


@pytest.mark.parametrize(("seq", "annotation"), [(6, False), (None, True), (6, True)])
def test_a_coalesced_kernel_has_the_size_of_all_its_records(seq, annotation):
    row = coalesced(seq=seq, annotation=annotation)[0]
    assert told(row) == ("all_reduce", 6000, "external_id")


def test_records_that_nothing_binds_are_calls_of_their_own():
    assert told(coalesced(seq=None, annotation=False)[0]) == ("all_reduce", 3000, "external_id")


def test_a_kernels_own_record_may_name_only_the_last_of_several():
    events = [record(12, 18), record(22, 28), kernel(100, 200)]
    result = found(events, [
        {"event_id": 0, "op": "all_reduce", "size_bytes": 1000, "seq": 6},
        {"event_id": 1, "op": "all_reduce", "size_bytes": 2000, "seq": 6},
        {"event_id": 2, "op": "all_reduce", "size_bytes": 2000, "seq": 6, "source": "kernel"},
    ])  # fmt: skip
    assert told(result[0]) == ("all_reduce", 3000, "kernel_args")


def test_two_kernels_of_one_bundle_leave_their_sizes_unknown():
    result = coalesced(kernel(300, 400, external_id=701))
    assert [r["size_bytes"] for r in result] == [None, None]


def test_broadcasts_from_every_root_in_one_call_are_an_uneven_all_gather():
    row = coalesced(op="broadcast", seq=5, annotation=False)[0]
    assert told(row) == ("all_gather", 6000, "external_id")


def test_a_record_inside_a_record_is_the_same_call():
    events = [record(0, 20, external_id=1), record(5, 15, external_id=2), kernel(30, 40, external_id=2)]
    calls = [{"event_id": n, "op": "all_reduce", "size_bytes": 512, "seq": 3} for n in (0, 1)]
    assert told(found(events, calls)[0]) == ("all_reduce", 512, "external_id")


def test_a_wait_with_the_sequence_number_of_its_call_adds_nothing():
    events = [record(0, 5, external_id=1), record(6, 9), kernel(30, 40, external_id=1)]
    calls = [
        {"event_id": 0, "op": "all_reduce", "size_bytes": 512, "seq": 3},
        {"event_id": 1, "op": "wait", "size_bytes": 1, "seq": 3},
    ]
    assert told(found(events, calls)[0]) == ("all_reduce", 512, "external_id")


def test_sends_and_receives_have_no_bandwidth():
    single = found(
        [kernel(0, 1000, SEND_RECV)], [{"event_id": 0, "op": "send", "size_bytes": 800, "source": "kernel"}]
    )[0]
    assert (single["op"], single["size_bytes"], single["algbw_bytes_per_s"]) == ("p2p", 800, None)
    several = coalesced(op="send", seq=None)[0]
    assert (several["op"], several["size_bytes"], several["busbw_bytes_per_s"]) == ("p2p", None, None)


@pytest.mark.parametrize(("op", "ranks", "factor"), [
    ("all_reduce", 4, 1.5), ("all_reduce", 8, 1.75), ("all_gather", 4, 0.75), ("reduce_scatter", 2, 0.5),
    ("all_to_all", 8, 0.875), ("broadcast", 8, 1.0), ("reduce", 3, 1.0), ("p2p", 2, None), ("unknown", 8, None),
    ("all_reduce", 1, None), ("barrier", 8, None),
])  # fmt: skip
def test_bus_factors_of_nccl_tests(op, ranks, factor):
    assert bus_factor(op, ranks) == factor


def test_bandwidth_on_one_rank_is_a_lower_bound():
    row = found([kernel(0, 1000)], [{"event_id": 0, "op": "all_reduce", "size_bytes": 800, "source": "kernel"}])[0]
    assert row["algbw_bytes_per_s"] == 8e8 and row["busbw_bytes_per_s"] == 8e8 * 1.75
    assert row["bandwidth_bound"] == "lower" and row["wait_ns"] is None and row["transfer_ns"] is None


def test_an_unknown_size_has_no_bandwidth_and_zero_is_a_size():
    sizes = [{"event_id": n, "op": "all_reduce", "size_bytes": s, "source": "kernel"} for n, s in enumerate((None, 0))]
    result = found([kernel(0, 10), kernel(20, 30)], sizes)
    assert [r["algbw_bytes_per_s"] for r in result] == [None, 0.0]
    assert [r["bandwidth_bound"] for r in result] == [None, "lower"]


@pytest.mark.parametrize(("name", "op"), [
    ("_allgather_base", "all_gather"), ("allgather_into_tensor_coalesced", "all_gather"),
    ("allreduce_coalesced", "all_reduce"),
    ("_reduce_scatter_base", "reduce_scatter"), ("all_to_allv", "all_to_all"), ("_broadcast_oop", "broadcast"),
    ("_reduce_oop", "reduce"), ("c10d::alltoall_base_", "all_to_all"), ("nccl:all_reduce", "all_reduce"),
    ("gloo:all_gather", "all_gather"), ("c10d::recv_", "p2p"), ("_c10d_functional::wait_tensor", "wait"),
    ("nccl:coalesced", "coalesced"), ("startCoalescing", "start_coalescing"), ("endCoalescing", "end_coalescing"),
    ("barrier", "barrier"), ("scatter", "scatter"), ("aten::mm", "unknown"), ("", "unknown"),
])  # fmt: skip
def test_operation_names(name, op):
    assert operation(name) == op


def reasons(text):
    return [r["blocked_by"] for r in draw(text)["collectives"].to_pylist()]


def test_hidden_communication_was_not_blocked():
    assert reasons("launch    |ab.....|\n7 compute |.aaaaa.|\n20 comm   |..bb...|") == [None]


def test_on_the_stream_that_computes_nothing_can_run_beside_it():
    assert reasons("launch    |ab.....|\n7 compute |.aaa...|\n7 comm    |....bb.|") == ["same_stream"]


def test_launched_after_compute_ran_out():
    assert reasons("launch    |a...b.......|\n7 compute |.aa.........|\n20 comm   |.....bbb....|") == ["launched_late"]


def test_compute_that_was_queued_and_starts_at_the_end_waited_for_it():
    assert reasons("""
        launch    |abc.......|
        7 compute |.aaa...ccc|
        20 comm   |....bbb...|
    """) == ["stream_wait"]


def test_the_last_of_a_step_has_nothing_to_hide_under():
    assert reasons("""
        step      |1111111111|
        launch    |ab........|
        7 compute |.aaa......|
        20 comm   |....bbb...|
    """) == ["no_compute_left"]


def test_without_launches_waits_cannot_be_told():
    assert reasons("step      |111111111|\n7 compute |aaa...ccc|\n20 comm   |...bbb...|") == ["unknown"]


def test_no_communication_no_rows():
    assert analysed(rows.events([{"kind": "kernel", "name": "gemm", "ts_ns": 0, "end": 5}]))["collectives"].equals(
        SCHEMA.empty()
    )
