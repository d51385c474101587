"""What samplers of GPUs call a figure, and what it is in `samples`: nvidia-smi's queries, both `dmon`s, DCGM's fields.

Throttle reasons are a bit mask (NVML nvmlClocksEventReasons): each group of bits becomes a metric that is 1 while one
of them is set. Idle clocks and clocks set by the operator are no throttling.
Sources: nvidia-smi --help-query-gpu (535 to 575), nvidia-smi dmon -h, dcgm_fields.h, dcgm-exporter default counters.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

REASONS = {
    "throttle_idle_ratio": 0x1,
    "throttle_power_ratio": 0x4 | 0x80,
    "throttle_thermal_ratio": 0x20 | 0x40,
    "throttle_hardware_ratio": 0x8,
    "throttle_other_ratio": 0x2 | 0x10 | 0x100,
}
MASK = "mask"
"""Stands for a column that holds the bit mask."""
_MIB = 2.0**20
_QUERIES = {
    r"clocks\.(?:current\.)?sm": ("sm_clock_mhz", 1.0),
    r"clocks\.(?:current\.)?mem(?:ory)?": ("memory_clock_mhz", 1.0),
    r"temperature\.gpu": ("gpu_temperature_c", 1.0),
    r"temperature\.memory": ("memory_temperature_c", 1.0),
    r"power\.draw(?:\.average|\.instant)?": ("gpu_power_w", 1.0),
    r"(?:enforced\.)?power\.limit": ("power_limit_w", 1.0),
    r"utilization\.gpu": ("gpu_utilization_ratio", 0.01),
    r"memory\.used": ("gpu_memory_used_bytes", _MIB),
    r"memory\.total": ("gpu_memory_total_bytes", _MIB),
    r"ecc\.errors\.corrected\.volatile\.total": ("ecc_corrected_count", 1.0),
    r"ecc\.errors\.uncorrected\.volatile\.total": ("ecc_uncorrected_count", 1.0),
    r"clocks_(?:throttle|event)_reasons\.active": (MASK, 1.0),
    r"clocks_(?:throttle|event)_reasons\.gpu_idle": ("throttle_idle_ratio", 1.0),
    r"clocks_(?:throttle|event)_reasons\.(?:sw_power_cap|hw_power_brake_slowdown)": ("throttle_power_ratio", 1.0),
    r"clocks_(?:throttle|event)_reasons\.[sh]w_thermal_slowdown": ("throttle_thermal_ratio", 1.0),
    r"clocks_(?:throttle|event)_reasons\.hw_slowdown": ("throttle_hardware_ratio", 1.0),
}
_DMON = {
    "pclk": ("sm_clock_mhz", 1.0), "mclk": ("memory_clock_mhz", 1.0), "temp": ("gpu_temperature_c", 1.0),
    "gtemp": ("gpu_temperature_c", 1.0), "mtemp": ("memory_temperature_c", 1.0), "pwr": ("gpu_power_w", 1.0),
    "sm": ("gpu_utilization_ratio", 0.01), "fb": ("gpu_memory_used_bytes", _MIB),
    "pviol": ("throttle_power_ratio", 0.01), "tviol": ("throttle_thermal_ratio", 1.0),
    "sbecc": ("ecc_corrected_count", 1.0), "dbecc": ("ecc_uncorrected_count", 1.0), "rxpci": ("", 0.0),
    # dcgmi dmon writes its columns in capitals
    "smclk": ("sm_clock_mhz", 1.0), "mmclk": ("memory_clock_mhz", 1.0), "tmptr": ("gpu_temperature_c", 1.0),
    "mmtmp": ("memory_temperature_c", 1.0), "power": ("gpu_power_w", 1.0), "gputl": ("gpu_utilization_ratio", 0.01),
    "fbusd": ("gpu_memory_used_bytes", _MIB), "fbttl": ("gpu_memory_total_bytes", _MIB),
    "dvcctr": (MASK, 1.0), "pmlmt": ("power_limit_w", 1.0),
}  # fmt: skip
_DCGM = {
    "SM_CLOCK": ("sm_clock_mhz", 1.0), "MEM_CLOCK": ("memory_clock_mhz", 1.0), "GPU_TEMP": ("gpu_temperature_c", 1.0),
    "MEMORY_TEMP": ("memory_temperature_c", 1.0), "POWER_USAGE": ("gpu_power_w", 1.0),
    "GPU_UTIL": ("gpu_utilization_ratio", 0.01), "FB_USED": ("gpu_memory_used_bytes", _MIB),
    "FB_TOTAL": ("gpu_memory_total_bytes", _MIB), "POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
    "CLOCK_THROTTLE_REASONS": (MASK, 1.0), "CLOCKS_EVENT_REASONS": (MASK, 1.0),
    "ECC_SBE_VOL_TOTAL": ("ecc_corrected_count", 1.0), "ECC_DBE_VOL_TOTAL": ("ecc_uncorrected_count", 1.0),
    "PCIE_REPLAY_COUNTER": ("pcie_replay_count", 1.0), "XID_ERRORS": ("last_xid_count", 1.0),
}  # fmt: skip


def of_query(name: str) -> tuple[str, float] | None:
    """Metric and factor of a column of `nvidia-smi --query-gpu`; its unit stands in brackets behind."""
    plain = re.sub(r"\s*\[.*\]$", "", name.strip().lower())
    return next((found for pattern, found in _QUERIES.items() if re.fullmatch(pattern, plain)), None)


def of_dmon(name: str) -> tuple[str, float] | None:
    """Metric and factor of a column of `nvidia-smi dmon` or `dcgmi dmon`."""
    found = _DMON.get(name.lower())
    return found if found and found[0] else None


def of_dcgm(name: str) -> tuple[str, float] | None:
    """Metric and factor of a DCGM field as the Prometheus exporter names it."""
    return _DCGM.get(name.removeprefix("DCGM_FI_DEV_"))


def reasons(mask: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """Which reasons each bit mask has: 1.0, 0.0, or not-a-number where the mask is unknown."""
    known = np.isfinite(mask)
    bits = np.where(known, mask, 0).astype(np.int64)
    return {name: np.where(known, (bits & group) != 0, np.nan).astype(np.float64) for name, group in REASONS.items()}
