"""Recorded products: work once per operator, time of all its kernels, efficiency only where it is known."""

import json

import numpy as np
import pyarrow as pa
import pytest

from diagnose import schema
from diagnose.analyses.gemms import gemms
from tests.analyses.rows import build, events, files, kernels

LARGE = [[4096, 4096], [4096, 4096]]
WORK = 2 * 4096**3


def shapes(*rows):
    """op_args from (event_id, dims, type)."""
    return build(
        "op_args",
        [
            {"event_id": i, "input_dims": json.dumps(dims), "input_types": json.dumps([kind] * len(dims))}
            for i, dims, kind in rows
        ],
    )


def one_product(kernel_rows, kind="c10::BFloat16", gpu="NVIDIA H100 80GB HBM3", name="aten::mm"):
    table = gemms(
        kernels(kernel_rows),
        events([{"kind": "op", "name": name, "ts_ns": 0, "end": 100}]),
        shapes((0, LARGE, kind)),
        files(gpu),
    )
    return table.to_pylist()


def test_efficiency():
    (row,) = one_product([{"event_id": 50, "launch_ns": 10, "ts_ns": 500, "dur_ns": 200_000}])

    assert (row["event_id"], row["op"], row["m"], row["n"], row["k"], row["batch"]) == (
        50,
        "aten::mm",
        4096,
        4096,
        4096,
        1,
    )
    assert row["work_flop"] == WORK
    assert row["rate_flop_per_s"] == pytest.approx(WORK / 200e-6)
    assert row["peak_flop_per_s"] == pytest.approx(989.4e12)
    assert row["efficiency_ratio"] == pytest.approx(WORK / 200e-6 / 989.4e12)


def test_several_kernels_are_one_piece_of_work():
    (row,) = one_product(
        [
            {"event_id": 50, "launch_ns": 10, "ts_ns": 500, "dur_ns": 150_000},
            {"event_id": 51, "launch_ns": 20, "ts_ns": 151_000, "dur_ns": 50_000},  # reduction of split-k
            {"event_id": 52, "launch_ns": 100, "ts_ns": 251_000, "dur_ns": 50_000},  # after the operator
        ]
    )

    assert (row["event_id"], row["dur_ns"], row["work_flop"]) == (50, 200_000, WORK)


def test_a_composite_and_its_product_count_once():
    ops = events(
        [
            {"kind": "op", "name": "aten::linear", "ts_ns": 0, "end": 100},
            {"kind": "op", "name": "aten::t", "ts_ns": 5, "end": 8},
            {"kind": "op", "name": "aten::addmm", "ts_ns": 10, "end": 90},
        ]
    )
    dims = [[64, 32], [16, 32], [16]]
    args = shapes((0, dims, "float"), (2, [[16], [64, 32], [32, 16]], "float"))
    work = kernels(
        [
            {"event_id": 50, "launch_ns": 6, "ts_ns": 500, "dur_ns": 10},  # a copy the composite made
            {"event_id": 51, "launch_ns": 20, "ts_ns": 600, "dur_ns": 10},
        ]
    )

    (row,) = gemms(work, ops, args, files()).to_pylist()

    assert (row["op"], row["event_id"], row["dur_ns"]) == ("aten::addmm", 51, 10)


def test_a_composite_without_a_known_product_inside_counts_itself():
    (row,) = gemms(
        kernels([{"event_id": 50, "launch_ns": 6, "ts_ns": 500, "dur_ns": 10}]),
        events([{"kind": "op", "name": "aten::linear", "ts_ns": 0, "end": 100}]),
        shapes((0, [[64, 32], [16, 32]], "c10::Half")),
        files(),
    ).to_pylist()

    assert (row["op"], row["dtype"], row["work_flop"]) == ("aten::linear", "float16", 2 * 64 * 32 * 16)


def test_faster_than_the_peak_has_no_efficiency():
    (row,) = one_product([{"event_id": 50, "launch_ns": 10, "ts_ns": 500, "dur_ns": 1_000}])

    assert row["efficiency_ratio"] is None
    assert row["rate_flop_per_s"] > row["peak_flop_per_s"]


def test_exactly_the_peak_counts():
    nanoseconds = int(np.ceil(WORK / 989.4e12 * 1e9))
    (row,) = one_product([{"event_id": 50, "launch_ns": 10, "ts_ns": 500, "dur_ns": nanoseconds}])

    assert row["efficiency_ratio"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("gpu", "kind"), [("NVIDIA H100", "c10::BFloat16"), (None, "c10::Half"), ("Quadro GP100", "c10::BFloat16")]
)
def test_unknown_peak(gpu, kind):
    (row,) = one_product([{"event_id": 50, "launch_ns": 10, "ts_ns": 500, "dur_ns": 200_000}], kind, gpu)

    assert row["peak_flop_per_s"] is None
    assert row["efficiency_ratio"] is None
    assert row["rate_flop_per_s"] is not None


@pytest.mark.parametrize(
    ("gpu", "kernel", "dtype"),
    [
        ("NVIDIA H100 80GB HBM3", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", "tf32"),
        ("NVIDIA A100-SXM4-80GB", "cutlass_80_tensorop_s1688gemm_128x128", "tf32"),
        ("NVIDIA H100 80GB HBM3", "sgemm_largek_lds64", "float32"),
        ("NVIDIA H100 80GB HBM3", "cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "float32"),
        ("NVIDIA H100 80GB HBM3", "nvjet_sss_128x64", None),
        ("Tesla V100-SXM2-32GB", "any name", "float32"),  # no TF32 units
        ("AMD Instinct MI300X", "Cijk_Ailk_Bljk_SB_MT128x128x16", "float32"),
    ],
)
def test_what_float32_was_computed_in(gpu, kernel, dtype):
    row = one_product([{"event_id": 50, "name": kernel, "launch_ns": 10, "ts_ns": 500, "dur_ns": 9**9}], "float", gpu)[
        0
    ]

    assert row["dtype"] == dtype
    assert (row["peak_flop_per_s"] is None) == (dtype is None)


def test_without_shapes_or_launches_there_is_nothing():
    assert one_product([{"event_id": 50, "launch_ns": None, "ts_ns": 500, "dur_ns": 5}]) == []
    empty = schema.INGESTED["op_args"].empty()
    ops = events([{"kind": "op", "name": "aten::mm", "ts_ns": 0, "end": 100}])
    work = kernels([{"event_id": 50, "launch_ns": 10, "ts_ns": 500, "dur_ns": 5}])
    assert gemms(work, ops, empty, files()).num_rows == 0
    assert gemms(work.slice(0, 0), ops, empty, files()).num_rows == 0


def test_backward_products_on_another_thread():
    ops = events(
        [
            {"kind": "op", "name": "aten::mm", "ts_ns": 0, "end": 100, "thread": 1},
            {"kind": "op", "name": "aten::mm", "ts_ns": 0, "end": 100, "thread": 2},
        ]
    )
    args = shapes((0, [[2, 3], [3, 4]], "c10::Half"), (1, [[5, 6], [6, 7]], "c10::Half"))
    work = kernels([{"event_id": 50, "launch_ns": 10, "launch_thread": 2, "ts_ns": 500, "dur_ns": 5}])

    (row,) = gemms(work, ops, args, files()).to_pylist()

    assert (row["m"], row["k"], row["n"]) == (5, 6, 7)


def test_ranks_keep_their_own_device():
    ops = pa.concat_tables(
        [events([{"kind": "op", "name": "aten::mm", "ts_ns": 0, "end": 100, "rank": r, "event_id": r}]) for r in (0, 1)]
    )
    args = shapes((0, LARGE, "c10::Half"), (1, LARGE, "c10::Half"))
    work = kernels([{"event_id": 50 + r, "rank": r, "launch_ns": 10, "ts_ns": 500, "dur_ns": 900_000} for r in (0, 1)])
    devices = pa.concat_tables([files("NVIDIA H100 PCIe", 0), files("NVIDIA A100-SXM4-80GB", 1)])

    assert [row["peak_flop_per_s"] for row in gemms(work, ops, args, devices).to_pylist()] == pytest.approx(
        [756e12, 312e12]
    )
