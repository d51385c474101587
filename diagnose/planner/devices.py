"""What a device can do for a plan: achieved rates, memory, links. Not what its data sheet promises.

Columns: dense 16-bit and 8-bit tensor peak, best matrix multiplication found on the device (MAMF: the maximum
achievable matmul FLOP/s over shapes, stas00/ml-engineering compute/accelerator), memory and its bandwidth, one-way
scale-up bandwidth per GPU, size of the fast domain, usual NIC per GPU, streaming multiprocessors, the vector
(non-tensor) fp32 peak that misaligned matrices fall back to (vendor data sheets), and the usable ring bandwidth
(NCCL src/graph/tuning.cc: NVLink 20, 20.6 and 40.1 GB/s a link from Ampere, Hopper and Blackwell).
The 500 W H100 with 96 GB runs at (500 / 700)^(1/3) of the measured clock: dynamic power goes with its cube.
A rate that was not measured is taken as MAMF_SHARE of the peak, the median of the measured parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

MAMF_SHARE = 0.76
"""Median of MAMF / peak over the parts measured in stas00/ml-engineering (16-bit and 8-bit)."""

CAPPED_CLOCK_RATIO = {"H100-96GB": 0.894}
"""(500 W / 700 W)^(1/3): dynamic power goes with the cube of the clock."""
GIB = 2**30


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


_T, _G = 1e12, 1e9
# name: generation, bf16, fp8, mamf bf16, mamf fp8, GiB, HBM TB/s, link GB/s, domain, NIC Gb/s, SMs, fp32 TF, ring GB/s
_ROWS: dict[str, tuple[float, ...]] = {
    "V100-16GB": (70, 125, 0, 0, 0, 16, 0.9, 150, 8, 100, 80, 15.7, 120),
    "V100-32GB": (70, 125, 0, 0, 0, 32, 0.9, 150, 8, 100, 80, 15.7, 120),
    "A100-40GB": (80, 312, 0, 271.2, 0, 40, 1.555, 300, 8, 200, 108, 19.5, 240),
    "A100-80GB": (80, 312, 0, 271.2, 0, 80, 2.039, 300, 8, 200, 108, 19.5, 240),
    "A100-PCIE": (80, 312, 0, 252.9, 0, 80, 1.935, 31, 1, 100, 108, 19.5, 24),
    "A800-80GB": (80, 312, 0, 271.2, 0, 80, 2.039, 200, 8, 200, 108, 19.5, 160),
    "H100-80GB": (90, 989, 1979, 794.5, 1402.6, 80, 3.35, 450, 8, 400, 132, 67, 371),
    "H100-96GB": (90, 989, 1979, 710, 1254, 96, 2.4, 450, 8, 400, 132, 67, 371),
    "H100-PCIE": (90, 756, 1513, 0, 0, 80, 2.0, 63, 1, 200, 114, 51, 48),
    "H800-80GB": (90, 989, 1979, 794.5, 1402.6, 80, 3.35, 200, 8, 400, 132, 67, 165),
    "H20-96GB": (90, 148, 296, 0, 0, 96, 4.0, 450, 8, 400, 78, 44, 371),
    "H200-141GB": (90, 989, 1979, 794.5, 1453.4, 141, 4.8, 450, 8, 400, 132, 67, 371),
    "GH200-96GB": (90, 989, 1979, 828.6, 1535, 96, 4.0, 450, 1, 400, 132, 67, 371),
    "B200-180GB": (100, 2250, 4500, 1745, 3432.5, 180, 8.0, 900, 8, 400, 148, 80, 722),
    "B300-288GB": (103, 2250, 4500, 1769, 3353.3, 288, 8.0, 900, 8, 800, 148, 80, 722),
    "GB200-186GB": (100, 2500, 5000, 1822, 3615.6, 186, 8.0, 900, 72, 400, 148, 80, 722),
    "GB300-288GB": (103, 2500, 5000, 0, 0, 288, 8.0, 900, 72, 800, 148, 80, 722),
    "L40S-48GB": (89, 362, 733, 0, 0, 48, 0.864, 31, 1, 100, 142, 91, 24),
    "A10-24GB": (86, 125, 0, 0, 0, 24, 0.6, 31, 1, 50, 72, 31, 24),
    "RTX4090-24GB": (89, 165, 330, 0, 0, 24, 1.008, 31, 1, 50, 128, 83, 24),
    "MI250X-128GB": (0, 383, 0, 0, 0, 128, 3.28, 350, 8, 200, 220, 48, 250),
    "MI300X-192GB": (0, 1307, 2615, 668.4, 0, 192, 5.3, 448, 8, 400, 304, 163, 313),
    "MI325X-256GB": (0, 1307, 2615, 784.9, 0, 256, 6.0, 448, 8, 400, 304, 163, 313),
    "MI355X-288GB": (0, 2500, 5000, 1565, 0, 288, 8.0, 535, 8, 400, 256, 157, 375),
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


def _device(part: str) -> Device:
    generation, peak, fp8, mamf, mamf8, gib, hbm, link, domain, nic, sms, vector, ring = _ROWS[part]
    return Device(
        name=part,
        generation=int(generation),
        peak_flop_per_s=peak * _T,
        peak_fp8_flop_per_s=fp8 * _T,
        mamf_flop_per_s=(mamf or MAMF_SHARE * peak) * _T,
        mamf_fp8_flop_per_s=(mamf8 or MAMF_SHARE * fp8) * _T,
        memory_bytes=int(gib * GIB),
        hbm_bytes_per_s=hbm * _T,
        link_bytes_per_s=link * _G,
        fast_domain=int(domain),
        nic_bytes_per_s=nic * _G / 8,
        sms=int(sms),
        vector_flop_per_s=vector * _T,
        ring_bytes_per_s=ring * _G,
    )
