"""Device names and peaks: exact names only, every figure sourced, nothing invented."""

import csv
from importlib.resources import files

import pytest

from diagnose.formulas.gpus import find_gpu, peak


def _rows():
    text = files("diagnose.formulas").joinpath("gpus.csv").read_text("utf-8")
    return {row["gpu"]: row for row in csv.DictReader(text.splitlines())}


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
        ("NVIDIA B200", "float32", 75),  # the launch brief said 80
        ("NVIDIA B200", "float64", 37),
        ("NVIDIA GB200", "float32", 80),
        ("NVIDIA B300 SXM6 AC", "float64", 1.25),
        ("NVIDIA H100 NVL", "tf32", 417.5),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4),
        ("NVIDIA A100-PG509-200", "bfloat16", 312),
        ("Tesla V100-DGXS-32GB", "float32", 15.7),
        ("Quadro GP100", "float32", 10.3),
        ("AMD Instinct MI210", "bfloat16", 181),
        ("NVIDIA L40", "bfloat16", 181),  # half the rate of the L40S, same chip
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
        "NVIDIA PG509-210",
        "NVIDIA H100",  # printed by boards of several kinds
        "AMD Instinct MI250X/MI250",  # printed by both, and they differ
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


# (row, SMs or CUs, dense fp16 FLOP per unit and clock with fp32 accumulation, boost GHz): public specification pages.
_UNITS = [
    ("P100-SXM2-16GB", 56, 256, 1.48),
    ("V100-SXM2-32GB", 80, 1024, 1.53),
    ("V100-PCIe", 80, 1024, 1.37),
    ("T4-16GB", 40, 1024, 1.59),
    ("RTX2080Ti-11GB", 68, 512, 1.545),
    ("A100-SXM4-80GB", 108, 2048, 1.41),
    ("A30-24GB", 56, 2048, 1.44),
    ("A10-24GB", 72, 1024, 1.695),
    ("A40-48GB", 84, 1024, 1.74),
    ("RTX-A6000-48GB", 84, 1024, 1.8),
    ("RTX3090-24GB", 82, 512, 1.695),
    ("RTX4090-24GB", 128, 512, 2.52),
    ("RTX5090-32GB", 170, 512, 2.407),
    ("RTX-6000-Ada-48GB", 142, 1024, 2.505),
    ("L40-48GB", 142, 512, 2.49),
    ("H100-SXM5-80GB", 132, 4096, 1.83),
    ("MI100-32GB", 120, 1024, 1.502),
    ("MI210-64GB", 104, 1024, 1.7),
    ("MI250-GCD-64GB", 104, 1024, 1.7),
    ("MI250X-GCD-64GB", 110, 1024, 1.7),
    ("MI300A-128GB", 228, 2048, 2.1),
    ("MI300X-192GB", 304, 2048, 2.1),
    ("MI325X-256GB", 304, 2048, 2.1),
    ("MI350X-288GB", 256, 4096, 2.2),
    ("MI355X-288GB", 256, 4096, 2.4),
]


@pytest.mark.parametrize(("gpu", "units", "flop_per_clock", "ghz"), _UNITS)
def test_peaks_follow_from_the_architecture(gpu, units, flop_per_clock, ghz):
    """Catches a sparse figure, a wrong board, and fp16 accumulation."""
    assert float(_rows()[gpu]["fp16_dense_tflops"]) == pytest.approx(units * flop_per_clock * ghz / 1e3, rel=0.005)


_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")


@pytest.mark.parametrize("gpu", list(_rows()))
def test_every_peak_is_read_or_derived(gpu):
    row = _rows()[gpu]
    known = [fmt for fmt in _FORMATS if row[f"{fmt}_dense_tflops"]]
    how = dict(part.split(": ") for part in row["peak_checked"].split("; ") if part)

    assert how.keys() <= {"read", "derived"}
    assert sorted(" ".join(how.values()).split()) == sorted(known)
    assert not known or row["peak_source"]
    assert not row["aliases"] or known
    assert "memory" not in row["peak_source"]


@pytest.mark.parametrize("gpu", [gpu for gpu, row in _rows().items() if row["aliases"]])
def test_formats_keep_the_ratios_of_the_hardware(gpu):
    """Halving the operand doubles the matrix rate: a sparse figure in one cell would break a ratio."""
    peaks = {fmt: float(value) for fmt in _FORMATS if (value := _rows()[gpu][f"{fmt}_dense_tflops"])}

    assert all(value > 0 for value in peaks.values())
    if {"bf16", "fp16"} <= peaks.keys() and gpu != "MI100-32GB":  # MI100 runs bf16 at half rate
        assert peaks["bf16"] == peaks["fp16"]
    for narrow, wide in (("fp8", "bf16"), ("bf16", "tf32")):
        if {narrow, wide} <= peaks.keys():
            assert peaks[narrow] / peaks[wide] == pytest.approx(2, rel=0.025)
    if {"fp32", "fp16"} <= peaks.keys():
        assert peaks["fp32"] <= peaks["fp16"] / 1.9
