"""Who was open at a launch: operator, module, source line, phase."""

import pyarrow as pa
import pytest

from diagnose import schema
from diagnose.analyses._host import HostStack
from diagnose.analyses._host_names import user_lines

EVENTS = schema.INGESTED["events"]


def events(*rows):
    """Rows of (kind, name, start, end[, thread])."""
    kind, name, start, end, thread = zip(*[(*row, 1)[:5] for row in rows], strict=True)
    return EVENTS.build(
        {
            "event_id": list(range(len(rows))),
            "kind": list(kind),
            "name": list(name),
            "ts_ns": list(start),
            "dur_ns": [b - a for a, b in zip(start, end, strict=True)],
            "process": [9] * len(rows),
            "thread": list(thread),
        }
    )


def args(*rows):
    """Rows of (event_id, sequence, forward thread)."""
    ids, sequence, forward = zip(*rows, strict=True)
    return schema.INGESTED["op_args"].build(
        {"event_id": list(ids), "sequence": list(sequence), "forward_thread": list(forward)}
    )


def ask(table, *moments, op_args=None):
    """Labels at (moment[, thread]); a list of dicts."""
    threads = [(m if isinstance(m, tuple) else (m, 1)) for m in moments]
    stack = HostStack(table, op_args)
    found = stack.at(
        pa.chunked_array([pa.array([9] * len(threads), pa.int64())]),
        pa.chunked_array([pa.array([t for _, t in threads], pa.int64())]),
        pa.chunked_array([pa.array([m for m, _ in threads], pa.int64())]),
    )
    columns = {name: values.to_pylist() for name, values in stack.labels(found).items()}
    return [{name: values[i] for name, values in columns.items()} for i in range(len(threads))]


def test_innermost_operator_and_nothing_between():
    table = events(
        ("op", "aten::linear", 0, 50), ("op", "aten::addmm", 10, 30), ("runtime", "cudaLaunchKernel", 12, 14)
    )

    assert [row["op"] for row in ask(table, 12, 30, 49, 50, (12, 2))] == [
        "aten::addmm", "aten::linear", "aten::linear", None, None,
    ]  # fmt: skip


def test_unlinked_launches_have_nothing_open():
    stack = HostStack(events(("op", "aten::add", 0, 50)))
    found = stack.at(*(pa.chunked_array([pa.array([None], pa.int64())]) for _ in range(3)))

    assert stack.labels(found)["op"].to_pylist() == [None]


def test_empty_trace():
    assert ask(EVENTS.empty(), 5) == [{"op": None, "module": None, "source": None, "phase": None}]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("FSDP::all_gather (layers.3)", "layers.3"),
        ("FSDP::post_backward_reduce (layers.3.mlp) [pg=2]", "layers.3.mlp"),
        ("FSDP::backward_prefetch for layers.2", "layers.2"),
        ("attention block", "attention block"),
        ("FSDP::root_pre_forward", None),
        ("ProfilerStep#4", None),
        ("nccl:all_reduce", None),
        ("gloo:all_reduce", None),
        ("Optimizer.step#AdamW.step", None),
        ("## Call CompiledFxGraph f3ab ##", None),
        ("FullyShardedDataParallel._pre_forward", None),
    ],
)
def test_annotation_as_module(name, module):
    assert ask(events(("annotation", name, 0, 10)), 5)[0]["module"] == module


def test_module_is_what_opened_last():
    table = events(
        ("annotation", "train", 0, 100),
        ("python", "nn.Module: Linear_0", 10, 50),
        ("annotation", "FSDP::all_gather (layers.0)", 20, 30),
        ("annotation", "ProfilerStep#1", 0, 100),
    )

    assert [row["module"] for row in ask(table, 5, 15, 25, 40, 60)] == [
        "train", "Linear_0", "layers.0", "Linear_0", "train",
    ]  # fmt: skip


def test_source_is_the_users_innermost_line():
    table = events(
        ("python", "train.py(12): main", 0, 100),
        ("python", "model/block.py(7): forward", 10, 90),
        ("python", "torch/nn/modules/module.py(1501): _call_impl", 20, 80),
        ("python", "<built-in method linear of type object at 0x7f>", 30, 70),
    )

    assert [row["source"] for row in ask(table, 5, 40)] == ["train.py(12): main", "model/block.py(7): forward"]


def test_library_and_standard_frames_are_not_the_users():
    names = [
        "train.py(3): step",
        "/home/me/torch_project/run.py(3): step",
        "threading.py(973): _bootstrap",
        "/usr/lib/python3.11/contextlib.py(81): inner",
        "/opt/conda/lib/python3.10/site-packages/foo/bar.py(5): f",
        "/opt/pytorch/torch/nn/modules/linear.py(116): forward",
        "<string>(2): x",
        "nn.Module: Linear_0",
    ]

    assert user_lines(names).tolist() == [True, True] + [False] * 6


def test_phases_of_a_step():
    table = events(
        ("annotation", "ProfilerStep#1", 0, 100),
        ("op", "aten::mm", 10, 20),
        ("op", "autograd::engine::evaluate_function: MmBackward0", 30, 50, 2),
        ("op", "aten::mm", 32, 40, 2),
        ("op", "aten::norm", 60, 65),  # clipping: neither
        ("annotation", "Optimizer.step#AdamW.step", 70, 90),
        ("op", "aten::_foreach_add_", 72, 80),
        ("op", "aten::item", 95, 98),
    )

    assert [row["phase"] for row in ask(table, 12, (33, 2), (55, 2), 61, 75, 96, 5)] == [
        "forward", "backward", "backward", None, "optimizer", None, None,
    ]  # fmt: skip


def test_backward_on_the_callers_thread():
    table = events(
        ("op", "aten::mm", 0, 10),
        ("op", "autograd::engine::evaluate_function: MmBackward0", 20, 40),
        ("op", "aten::mm", 50, 60),
        ("op", "autograd::engine::evaluate_function: MmBackward0", 70, 90),
    )

    assert [row["phase"] for row in ask(table, 5, 25, 55, 75)] == ["forward", "backward", "forward", "backward"]


def test_a_sequence_number_says_forward_where_marks_do_not():
    table = events(
        ("op", "autograd::engine::evaluate_function: MmBackward0", 0, 10, 2),
        ("op", "aten::mm", 20, 30),
        ("op", "aten::add", 40, 50),
    )

    phases = [row["phase"] for row in ask(table, 25, 45, op_args=args((0, 1, 1), (1, 2, 0)))]

    assert phases == ["forward", None]


def test_inference_is_forward():
    assert ask(events(("op", "aten::mm", 0, 10)), 5)[0]["phase"] == "forward"


def test_communication_between_the_passes_has_no_phase():
    table = events(
        ("op", "aten::mm", 0, 10),
        ("op", "c10d::recv_", 12, 18),
        ("op", "autograd::engine::evaluate_function: MmBackward0", 20, 40, 2),
        ("annotation", "FSDP::pre_forward (layers.0)", 50, 60),
        ("op", "c10d::_allgather_base_", 52, 58),
        ("op", "_ReduceFromModelParallelRegion", 62, 70),
        ("op", "c10d::allreduce_", 64, 68),
        ("annotation", "PP:0F1", 72, 80),
        ("op", "c10d::send", 74, 76),
        ("op", "autograd::engine::evaluate_function: MmBackward0", 90, 95, 2),
    )

    phases = [row["phase"] for row in ask(table, 5, 15, 55, 66, 75, op_args=args((5, 7, 0)))]

    assert phases == ["forward", None, "forward", "forward", "forward"]


def test_training_whose_backward_is_not_recognised_is_not_all_forward():
    table = events(
        ("op", "aten::mm", 0, 10), ("annotation", "Optimizer.step#SGD.step", 20, 30), ("op", "aten::mm", 22, 25)
    )

    assert [row["phase"] for row in ask(table, 5, 23)] == [None, "optimizer"]


def test_backward_work_gets_the_module_of_its_forward():
    table = events(
        ("python", "nn.Module: Linear_0", 0, 20),
        ("python", "net.py(8): forward", 1, 19),
        ("op", "aten::addmm", 5, 10),
        ("python", "nn.Module: Linear_1", 20, 40),
        ("op", "aten::addmm", 25, 30),
        ("op", "autograd::engine::evaluate_function: AddmmBackward0", 50, 60, 2),
        ("op", "aten::mm", 52, 55, 2),
    )

    row = ask(table, (53, 2), op_args=args((2, 11, 0), (4, 12, 0), (5, 11, 1)))[0]

    assert (row["op"], row["phase"], row["module"], row["source"]) == (
        "aten::mm", "backward", "Linear_0", "net.py(8): forward",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["annotation", "op"])  # "op": recordings before 2022
def test_optimizer_range_of_any_year(kind):
    table = events(
        (kind, "ProfilerStep#1", 0, 100),
        ("op", "aten::mm", 10, 20),
        (kind, "Optimizer.zero_grad#SGD.zero_grad", 22, 28),
        ("op", "autograd::engine::evaluate_function: MmBackward0", 30, 50, 2),
        (kind, "Optimizer.step#SGD.step", 60, 90),
        ("op", "aten::add_", 65, 70),
    )

    rows = ask(table, 12, 25, 66, 62)

    assert [row["phase"] for row in rows] == ["forward", "optimizer", "optimizer", "optimizer"]
    assert rows[3]["op"] is None


def test_threads_of_processes_do_not_mix():
    table = EVENTS.build(
        {
            "event_id": [0, 1],
            "kind": ["op", "op"],
            "name": ["aten::a", "aten::b"],
            "ts_ns": [0, 0],
            "dur_ns": [10, 10],
            "process": [1, 2],
            "thread": [2, 1],
        }
    )
    stack = HostStack(table)
    columns = [pa.chunked_array([pa.array(values, pa.int64())]) for values in ([1, 2, 1, 3], [2, 1, 1, 1], [5] * 4)]

    assert stack.labels(stack.at(*columns))["op"].to_pylist() == ["aten::a", "aten::b", None, None]
