"""Recomputation: found with and without stacks, never made of ordinary backward work."""

import pytest

from diagnose.analyses.recompute import recompute
from tests.analyses.rows import build, events, kernels, steps

NODE = "autograd::engine::evaluate_function: "


def op(name, start, end, thread=2):
    return {"kind": "op", "name": name, "ts_ns": start, "end": end, "thread": thread}


def frame(name, start, end):
    return {"kind": "python", "name": name, "ts_ns": start, "end": end, "thread": 2}


def args(*rows):
    """op_args from (event_id, sequence, forward thread)."""
    return build("op_args", [dict(zip(("event_id", "sequence", "forward_thread"), row, strict=True)) for row in rows])


def rows_of(host, launches, op_args=None):
    """Rows for kernels launched at the given moments on thread 2; the first kernel, of 40 ns, is the forward's."""
    work = [{"ts_ns": 0, "end": 40, "launch_ns": 0, "phase": "forward", "event_id": 900}]
    work += [
        {
            "ts_ns": 100 * n,
            "dur_ns": 10,
            "launch_ns": moment,
            "launch_thread": 2,
            "phase": "backward",
            "event_id": 900 + n,
        }
        for n, moment in enumerate(launches, 1)
    ]
    found = recompute(kernels(work), events(host), args() if op_args is None else op_args, steps((0, 1000)))
    return [(r["step"], r["busy_ns"], r["forward_ns"], r["kernels_count"], r["evidence"]) for r in found.to_pylist()]


HOOK = "torch/utils/checkpoint.py(1116): unpack_hook"


def test_frames_of_a_checkpoint_inside_a_node():
    host = [op(NODE + "MulBackward0", 10, 90), frame(HOOK, 20, 60), op("aten::mul", 70, 80)]

    assert rows_of(host, [15, 30, 50, 75]) == [(1, 20, 40, 2, "checkpoint_frame")]


def test_backward_inside_a_reentrant_checkpoint_is_ordinary():
    host = [
        op(NODE + "CheckpointFunctionBackward", 10, 90),
        frame("torch/utils/checkpoint.py(320): backward", 12, 88),
        op(NODE + "MmBackward0", 50, 80),
    ]

    assert rows_of(host, [20, 60]) == [(1, 10, 40, 1, "checkpoint_frame")]


def test_operators_that_record_inside_a_node():
    host = [op(NODE + "MulBackward0", 10, 90), op("aten::mm", 20, 40), op("aten::mul", 60, 70)]

    assert rows_of(host, [30, 65], args((0, 5, 1), (1, 99, 0), (2, None, None))) == [
        (1, 10, 40, 1, "forward_op_in_backward"),
    ]


def test_backward_inside_what_recorded_is_ordinary():
    host = [
        op(NODE + "CheckpointFunctionBackward", 10, 90),
        op("aten::mm", 20, 40),
        op(NODE + "MmBackward0", 50, 80),
        op("aten::mm", 52, 60),
    ]

    assert rows_of(host, [30, 55], args((0, 5, 1), (1, 99, 0), (2, 99, 1))) == [
        (1, 10, 40, 1, "forward_op_in_backward"),
    ]


def test_create_graph_claims_nothing():
    host = [op(NODE + "ConvolutionBackward0", 10, 90), op("aten::mm", 20, 30), op("aten::convolution_backward", 40, 60)]

    assert rows_of(host, [25, 50], args((0, 5, 1), (1, 98, 0), (2, 99, 0))) == []


@pytest.mark.parametrize(
    "host",
    [
        [op(NODE + "MmBackward0", 10, 90), op("MmBackward0", 12, 80), op("aten::mm", 20, 40)],
        [op("aten::mm", 20, 40, thread=1), op(NODE + "MmBackward0", 50, 90)],
        [frame(HOOK, 20, 60)],  # a frame outside of any backward
        [],
    ],
)
def test_ordinary_passes_have_no_row(host):
    assert rows_of(host, [30], args((0, 5, 1), (1, 5, 1))) == []


def test_copies_and_communication_do_not_count():
    host = events([op(NODE + "MulBackward0", 10, 90), frame(HOOK, 20, 60)])
    work = kernels([{"ts_ns": 0, "end": 9, "launch_ns": 30, "launch_thread": 2, "class": c} for c in ("copy", "comm")])

    assert recompute(work, host, args(), steps((0, 1000))).num_rows == 0
