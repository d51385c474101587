"""What each GPU can do at most: dense peak rates by number format.

A peak is the vendor's figure for dense matrix products (no structured sparsity; fp32 accumulation on consumer cards)
at the vendor's boost clock; few kernels reach it, and a power cap lowers it. Where that clock is below the highest one
(Hopper tensor cores: 1.83 of 1.98 GHz), a short kernel can pass it. Sources stand in `gpus.csv`, one per row;
`peak_checked` names the formats whose figure was read in the source, and those derived from it (units x FLOP per clock
x clock, or a fixed ratio to a format that was read). An empty cell means that no source confirms a figure, not that
the rate is zero. A device is looked up by the exact name its driver prints: variants of one chip (SXM, PCIe, NVL, a
slice of a card) differ by up to a third, so a near miss is unknown. A name does not show compute partitions (MI300X in
CPX mode prints the name of the whole GPU): such a device has a fraction of the peak given here.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_COLUMN_OF_DTYPE = {
    "float64": "fp64",
    "float32": "fp32",
    "tf32": "tf32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
}


class Gpu(NamedTuple):
    """One kind of GPU: row name, vendor, dense peak in FLOP/s by dtype (known ones only), source of the peaks."""

    name: str
    vendor: str
    peak_flop_per_s: Mapping[str, float]
    source: str


class FastDomain(NamedTuple):
    """GPUs that share fast links, bus bandwidth of a large ring all-reduce among them, and where it was measured."""

    ranks: int
    ring_bytes_per_s: float
    generation: int
    source: str


class Peak(NamedTuple):
    """A dense peak, or None with the reason why there is none. `source` names GPU, dtype and origin."""

    flop_per_s: float | None
    source: str
    reason: str


class Part(NamedTuple):
    """One row of the table for a planner: dense peaks, the best products measured on it, memory and links.

    FLOP/s by dtype, bytes, one-way bytes/s per GPU; 0.0 where no source gives the figure.
    """

    name: str
    peak_flop_per_s: Mapping[str, float]
    mamf_flop_per_s: float
    mamf_fp8_flop_per_s: float
    memory_bytes: int
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    nic_bytes_per_s: float


def find_gpu(device_name: str | None) -> Gpu | None:
    """The GPU with this device name (case and a leading "NVIDIA" do not matter); None for any other name.

    >>> find_gpu("NVIDIA H100 80GB HBM3").name, find_gpu("NVIDIA A100-SXM4-80GB MIG 1g.10gb")
    ('H100-SXM5-80GB', None)
    """
    return _by_alias().get(_normal(device_name or ""))


def fast_domain(device_name: str | None) -> FastDomain | None:
    """Fast links of a device, where somebody measured a ring all-reduce over them; None elsewhere.

    >>> fast_domain("NVIDIA H100 80GB HBM3").ring_bytes_per_s
    370000000000.0
    """
    row = _rows_by_alias().get(_normal(device_name or ""))
    if row is None or not row["measured_ar_busbw_gb_s"] or not row["scaleup_domain_gpus"].isdecimal():
        return None
    number = re.match(r"[0-9.]+", row["measured_ar_busbw_gb_s"])
    if number is None:
        return None
    ring = float(number[0])
    generation = int(row["arch"][2:]) if row["arch"].startswith("SM") and row["arch"][2:].isdecimal() else 0
    return FastDomain(int(row["scaleup_domain_gpus"]), ring * 1e9, generation, f"{row['gpu']}: {row['source']}")


def peak(device_name: str | None, dtype: str | None) -> Peak:
    """Dense peak of a device for a dtype: float64, float32, tf32, float16, bfloat16, float8."""
    if not device_name:
        return Peak(None, "", "the recording does not name the GPU")
    gpu = find_gpu(device_name)
    if gpu is None:
        return Peak(None, "", f"no peak is known for a GPU named {device_name!r}")
    rate = gpu.peak_flop_per_s.get(dtype or "")
    if rate is None:
        return Peak(None, "", f"no {dtype or 'peak for an unknown dtype'} peak is known for {gpu.name}")
    return Peak(rate, f"{gpu.name}, {dtype} dense {rate / 1e12:g} TFLOP/s: {gpu.source}", "")


def part(row_name: str) -> Part:
    """The row of that name. Raises KeyError for any other name.

    >>> part("B200-SXM-180GB").hbm_bytes_per_s
    7700000000000.0
    """
    row = {each["gpu"]: each for each in _table()}[row_name]

    def figure(column: str, unit: float) -> float:
        return float(row[column] or 0) * unit

    return Part(
        row_name,
        _peaks(row),
        figure("mamf_bf16_tflops", 1e12),
        figure("mamf_fp8_tflops", 1e12),
        int(figure("mem_gb", 2**30)),
        figure("hbm_tb_s", 1e12),
        figure("scaleup_uni_gb_s", 1e9),
        figure("typical_nic_gbps_per_gpu", 1e9 / 8),
    )


@cache
def _table() -> list[dict[str, str]]:
    text = files("diagnose.formulas").joinpath("gpus.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def _rows_by_alias() -> dict[str, dict[str, str]]:
    return {_normal(alias): row for row in _table() for alias in row["aliases"].split(";") if alias}


@cache
def _by_alias() -> dict[str, Gpu]:
    found: dict[str, Gpu] = {}
    for row in _table():
        gpu = Gpu(row["gpu"], row["vendor"], _peaks(row), row["peak_source"])
        for alias in filter(None, row["aliases"].split(";")):
            assert _normal(alias) not in found, f"two GPUs are called {alias}"
            found[_normal(alias)] = gpu
    return found


def _peaks(row: Mapping[str, str]) -> dict[str, float]:
    return {
        dtype: float(row[f"{column}_dense_tflops"]) * 1e12
        for dtype, column in _COLUMN_OF_DTYPE.items()
        if row[f"{column}_dense_tflops"]
    }


def _normal(name: str) -> str:
    return " ".join(name.split()).lower().removeprefix("nvidia ")
