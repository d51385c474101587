"""Utilisation per step: the right figure, and a reason wherever there is none."""

import json

import pytest

from diagnose import schema
from diagnose.analyses.mfu import MIN_COVERED_RATIO, mfu
from tests.analyses.rows import build, events, files, kernels, steps

SETTINGS = schema.INGESTED["settings"].empty()
WORK = 2 * 4096**3


def args(*kinds):
    """op_args of 4096 x 4096 products, one per type."""
    return build(
        "op_args",
        [
            {"event_id": i, "input_dims": "[[4096, 4096], [4096, 4096]]", "input_types": json.dumps([kind, kind])}
            for i, kind in enumerate(kinds)
        ],
    )


def products(count):
    return events([{"kind": "op", "name": "aten::mm", "ts_ns": 100 * i, "end": 100 * i + 90} for i in range(count)])


def launched(*durations, extra=()):
    rows = [
        {"event_id": 50 + i, "launch_ns": 100 * i + 10, "ts_ns": 10**6 * (i + 1), "dur_ns": d, "category": "gemm"}
        for i, d in enumerate(durations)
    ]
    return kernels([*rows, *extra])


def one_step(work, ops=None, op_args=None, gpu="NVIDIA H100 80GB HBM3", marks=None):
    table = mfu(
        steps((0, 1_000_000)) if marks is None else marks,
        work,
        products(1) if ops is None else ops,
        args("c10::BFloat16") if op_args is None else op_args,
        files(gpu),
        SETTINGS,
    )
    assert table.num_rows == 1
    return table.to_pylist()[0]


def test_figure():
    row = one_step(launched(200_000))

    assert row["work_flop"] == WORK
    assert row["mfu_ratio"] == pytest.approx(WORK / 1e-3 / 989.4e12)
    assert (row["dtype"], row["reason"], row["covered_ratio"]) == ("bfloat16", "", 1.0)
    assert "H100-SXM5-80GB" in row["peak_source"]


def test_mixed_formats_have_a_mixed_peak():
    row = one_step(launched(200_000, 200_000), products(2), args("c10::BFloat16", "c10::Float8_e4m3fn"))

    ideal_s = WORK / 989.4e12 + WORK / 1978.9e12
    assert row["peak_flop_per_s"] == pytest.approx(2 * WORK / ideal_s)
    assert row["mfu_ratio"] == pytest.approx(ideal_s / 1e-3)
    assert "float8" in row["peak_source"]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"gpu": "NVIDIA H100"}, "no peak is known for a GPU named"),
        ({"gpu": None}, "does not name the GPU"),
        ({"gpu": "Tesla V100-SXM2-32GB"}, "no bfloat16 peak is known"),
        ({"op_args": schema.INGESTED["op_args"].empty()}, "record_shapes=True"),
        ({"op_args": args("float")}, "may run as TF32"),
        ({"marks": steps((0, 1_000_000), complete=False)}, "cuts this step"),
        ({"marks": steps((0, 50_000))}, "impossible"),
    ],
)
def test_reasons(case, reason):
    row = one_step(launched(200_000), **case)

    assert row["mfu_ratio"] is None
    assert reason in row["reason"]


def test_no_shapes_is_not_no_work():
    row = one_step(launched(200_000), op_args=schema.INGESTED["op_args"].empty())

    assert row["work_flop"] is None
    assert row["covered_ratio"] is None


def unknown(duration, **more):
    return {"event_id": 90, "launch_ns": 5000, "ts_ns": 9 * 10**6, "dur_ns": duration, "category": "attention", **more}


@pytest.mark.parametrize(("hidden", "given"), [(100_000, True), (100_001, False)])
def test_coverage_threshold(hidden, given):
    known = round(100_000 / (1 - MIN_COVERED_RATIO)) - 100_000
    row = one_step(launched(known, extra=[unknown(hidden)]))

    assert (row["mfu_ratio"] is not None) is given
    assert row["covered_ratio"] == pytest.approx(known / (known + hidden))


def test_elementwise_kernels_do_not_hide_work():
    extra = [
        unknown(900_000, category="elementwise"),
        unknown(900_000, category="triton", name="triton_poi_fused_add_0", event_id=91),
    ]

    assert one_step(launched(100_000, extra=extra))["reason"] == ""


def test_triton_products_do():
    row = one_step(launched(100_000, extra=[unknown(900_000, category="triton", name="triton_tem_fused_mm_0")]))

    assert "the work of 90 % of compute time is not known" in row["reason"]


def test_captured_graphs_are_named():
    assert "captured graphs" in one_step(launched(100_000, extra=[unknown(900_000, graph=True)]))["reason"]


def test_host_work_is_no_device_work():
    row = one_step(kernels([{"launch_ns": 10, "ts_ns": 0, "dur_ns": 100, "device": None, "stream": None}]))

    assert row["reason"] == "no compute ran on a device"


def test_without_steps_the_window_is_one():
    row = one_step(
        launched(200_000, extra=[unknown(100, category="elementwise", ts_ns=2_000_000 - 100)]), marks=steps()
    )

    assert row["step"] is None
    assert row["dur_ns"] == 1_000_000
    assert row["mfu_ratio"] == pytest.approx(WORK / 1e-3 / 989.4e12)


def test_empty():
    assert mfu(steps(), kernels([]), products(1), args("float"), files(), SETTINGS).num_rows == 0
