"""What a device can do for a plan: achieved rates, memory, links. Not what its data sheet promises.

Dense peaks, the best matrix multiplication found on the device (MAMF: the maximum achievable matmul FLOP/s over shapes,
stas00/ml-engineering compute/accelerator), memory, its bandwidth, links and NICs are those of `formulas/gpus.csv`, with
their sources. Here stand the size of the fast domain, the streaming multiprocessors, and the usable ring bandwidth
(NCCL src/graph/tuning.cc: NVLink 20, 20.6 and 40.1 GB/s a link from Ampere, Hopper and Blackwell). Misaligned matrices
fall back to the fp32 peak of the vector units.
The 500 W H100 with 96 GB runs at (500 / 700)^(1/3) of the measured clock: dynamic power goes with its cube.
A rate that was not measured is taken as MAMF_SHARE of the peak, the median of the measured parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from diagnose.formulas import gpus

MAMF_SHARE = 0.76
"""Median of MAMF / peak over the parts measured in stas00/ml-engineering (16-bit and 8-bit)."""

CAPPED_CLOCK_RATIO = {"H100-96GB": 0.894}
"""(500 W / 700 W)^(1/3): dynamic power goes with the cube of the clock."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the planner sees it. FLOP/s and bytes/s; memory in bytes; `generation` is the compute capability."""

    name: str
    generation: int
    peak_flop_per_s: float
    peak_fp8_flop_per_s: float
    mamf_flop_per_s: float
    mamf_fp8_flop_per_s: float
    memory_bytes: int
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    fast_domain: int
    nic_bytes_per_s: float
    sms: int
    vector_flop_per_s: float
    ring_bytes_per_s: float
    """Bus bandwidth of a large ring in the fast domain: links times NCCL's usable bandwidth per link."""

    @property
    def clock_ratio(self) -> float:
        """Sustained clock against the part whose kernels were published: below 1 under a power cap."""
        return CAPPED_CLOCK_RATIO.get(self.name, 1.0)

    def matmul_flop_per_s(self, bits: int) -> float:
        """Best matmul rate by operand width in bits; 4-bit runs at twice the 8-bit rate (vendor data sheets)."""
        if bits == 4 and self.generation >= 100:
            return 2.0 * self.mamf_fp8_flop_per_s
        return self.mamf_fp8_flop_per_s if bits <= 8 and self.peak_fp8_flop_per_s else self.mamf_flop_per_s


class _Own(NamedTuple):
    """What the planner knows of a part beyond its row in `formulas/gpus.csv`."""

    row: str
    generation: int
    fast_domain: int
    sms: int
    ring_gb_per_s: float
    same_chip: str = ""
    """Row whose measured products hold for this part, too: the same chip under another name."""
    vector_flop_per_s: float = 0.0
    """Where the row has no fp32 peak."""
    nic_bytes_per_s: float = 0.0


_G = 1e9
# name: row of gpus.csv, generation, fast domain, SMs, ring GB/s, further facts
_ROWS: dict[str, _Own] = {
    "V100-16GB": _Own("V100-SXM2-16GB", 70, 8, 80, 120),
    "V100-32GB": _Own("V100-SXM2-32GB", 70, 8, 80, 120),
    "A100-40GB": _Own("A100-SXM4-40GB", 80, 8, 108, 240),
    "A100-80GB": _Own("A100-SXM4-80GB", 80, 8, 108, 240),
    "A100-PCIE": _Own("A100-PCIe-80GB", 80, 1, 108, 24),
    "A800-80GB": _Own("A800-SXM-80GB", 80, 8, 108, 160, same_chip="A100-SXM4-80GB"),
    "H100-80GB": _Own("H100-SXM5-80GB", 90, 8, 132, 371),
    "H100-96GB": _Own(
        "H100-SXM-96GB-HBM2e-500W (Meta Grand Teton)",
        90,
        8,
        132,
        371,
        same_chip="H100-SXM5-80GB",
        vector_flop_per_s=67e12,
    ),
    "H100-PCIE": _Own("H100-PCIe-80GB", 90, 1, 114, 48),
    "H800-80GB": _Own("H800-SXM-80GB", 90, 8, 132, 165, same_chip="H100-SXM5-80GB"),
    "H20-96GB": _Own("H20-96GB", 90, 8, 78, 371),
    "H200-141GB": _Own("H200-SXM-141GB", 90, 8, 132, 371),
    "GH200-96GB": _Own("GH200-96GB", 90, 1, 132, 371),
    "B200-180GB": _Own("B200-SXM-180GB", 100, 8, 148, 722),
    "B300-288GB": _Own("B300-SXM-288GB", 103, 8, 148, 722),
    "GB200-186GB": _Own("GB200-186GB", 100, 72, 148, 722),
    "GB300-288GB": _Own("GB300-288GB", 103, 72, 148, 722),
    "L40S-48GB": _Own("L40S-48GB", 89, 1, 142, 24),
    "A10-24GB": _Own("A10-24GB", 86, 1, 72, 24),
    "RTX4090-24GB": _Own("RTX4090-24GB", 89, 1, 128, 24, nic_bytes_per_s=6.25e9),
    "MI250X-128GB": _Own("MI250X-128GB", 0, 8, 220, 250, vector_flop_per_s=48e12),
    "MI300X-192GB": _Own("MI300X-192GB", 0, 8, 304, 313),
    "MI325X-256GB": _Own("MI325X-256GB", 0, 8, 304, 313),
    "MI355X-288GB": _Own("MI355X-288GB", 0, 8, 256, 375),
}


def device_names() -> tuple[str, ...]:
    return tuple(_ROWS)


@lru_cache(maxsize=1024)
def find_device(name: str) -> Device | None:
    """The part a user's or a runtime's name means (`NVIDIA H100 80GB HBM3`, `h100`, `A100-SXM4-40GB`); None if
    unknown."""
    words = name.upper().replace("NVIDIA", "").replace(" ", "-").replace("_", "-").strip("-")
    family = next((f for f in _families() if f in words), None)
    if family is None:
        return None
    parts = [part for part in _ROWS if part.split("-")[0] == family]
    sized = [part for part in parts if part.split("-")[1] in words]
    sized.sort(key=lambda part: not part.endswith("PCIE"))  # a PCIe card has half the power and no switch
    return _device(sized[0] if sized else _usual(parts))


def _usual(parts: list[str]) -> str:
    """The part people mean when they leave the memory size out: the largest SXM part of that name, H100 being 80 GB."""
    plain = [part for part in parts if not part.endswith("PCIE") and part != "H100-96GB"]
    return plain[-1]


def _families() -> list[str]:
    return sorted({part.split("-")[0] for part in _ROWS}, key=len, reverse=True)


def _device(name: str) -> Device:
    own = _ROWS[name]
    sheet = gpus.part(own.row)
    measured = gpus.part(own.same_chip) if own.same_chip else sheet
    peaks, clock = sheet.peak_flop_per_s, CAPPED_CLOCK_RATIO.get(name, 1.0)
    peak = peaks.get("bfloat16") or peaks["float16"]  # Volta has no bf16
    fp8 = peaks.get("float8", 0.0)
    return Device(
        name=name,
        generation=own.generation,
        peak_flop_per_s=peak,
        peak_fp8_flop_per_s=fp8,
        mamf_flop_per_s=measured.mamf_flop_per_s * clock or MAMF_SHARE * peak,
        mamf_fp8_flop_per_s=measured.mamf_fp8_flop_per_s * clock or MAMF_SHARE * fp8,
        memory_bytes=sheet.memory_bytes,
        hbm_bytes_per_s=sheet.hbm_bytes_per_s,
        link_bytes_per_s=sheet.link_bytes_per_s,
        fast_domain=own.fast_domain,
        nic_bytes_per_s=own.nic_bytes_per_s or sheet.nic_bytes_per_s,
        sms=own.sms,
        vector_flop_per_s=own.vector_flop_per_s or peaks["float32"],
        ring_bytes_per_s=own.ring_gb_per_s * _G,
    )
