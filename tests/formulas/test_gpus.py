"""Device names and peaks: exact names only, every figure sourced, nothing invented."""

import csv
from importlib.resources import files

import pytest

from diagnose.formulas.gpus import find_gpu, peak


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 NVL", "bfloat16", 835.5),
        ("NVIDIA H100 80GB HBM3", "float8", 1978.9),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("A100-SXM4-40GB", "float32", 19.5),
        ("NVIDIA A100 80GB PCIe", "float16", 312),
        ("Tesla V100-SXM2-32GB", "float16", 125),
        ("AMD Instinct MI300X", "bfloat16", 1307.4),
        ("AMD Instinct MI250X", "float16", 191.5),  # one of two dies is one device
        ("NVIDIA GeForce RTX 4090", "float16", 165.2),  # fp32 accumulation
        ("NVIDIA H20", "bfloat16", 148),
    ],
)
def test_peaks(name, dtype, tflops):
    found = peak(name, dtype)

    assert found.flop_per_s == pytest.approx(tflops * 1e12)
    assert find_gpu(name).name in found.source
    assert found.reason == ""


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA A100-PG509-200",
        "NVIDIA H100",
        "AMD Radeon Graphics",
        "H100 80GB",
        "",
        None,
    ],
)
def test_no_near_miss(name):
    assert find_gpu(name) is None
    assert peak(name, "bfloat16").flop_per_s is None
    assert peak(name, "bfloat16").reason


def test_a_format_without_a_figure_is_unknown():
    found = peak("Tesla V100-SXM2-32GB", "bfloat16")

    assert found.flop_per_s is None
    assert "bfloat16" in found.reason
    assert peak("NVIDIA H100 80GB HBM3", None).flop_per_s is None


def test_every_peak_has_a_source_and_sane_order():
    text = files("diagnose.formulas").joinpath("gpus.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        peaks = {key: float(row[key]) for key in row if key.endswith("_dense_tflops") and row[key]}
        assert not row["aliases"] or (row["peak_source"] and peaks), row["gpu"]
        assert all(value > 0 for value in peaks.values())
        if {"bf16_dense_tflops", "fp8_dense_tflops"} <= peaks.keys():
            assert 1 <= peaks["fp8_dense_tflops"] / peaks["bf16_dense_tflops"] <= 2.05, row["gpu"]
