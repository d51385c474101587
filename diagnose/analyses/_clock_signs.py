"""Clocks of GPUs before and behind a change of the step: which fell, and does anything say why?

A fall counts from 2 %. GPUs that idle more than before lower their clocks because they wait: no sign of throttling.
Reasons (heat, power, the board) count where they were active in a quarter of the samples behind the change, and in
clearly fewer before it.
"""

from __future__ import annotations

from typing import NamedTuple

CLOCK_FALL_RATIO = 0.02
ACTIVE_RATIO = 0.25
FEW_RATIO = 0.25
REASONS = {
    "throttle_thermal_ratio": "too hot", "throttle_power_ratio": "power limit or brake",
    "throttle_hardware_ratio": "hardware slowdown",
}  # fmt: skip


class Level(NamedTuple):
    """Medians before and behind the change, and the slope of a drift."""

    early: float
    late: float
    slope: float | None

    @property
    def grown(self) -> float:
        return self.late - self.early

    @property
    def ratio(self) -> float:
        return self.late / self.early - 1 if self.early else 0.0


Levels = dict[str, dict[int | None, Level]]


class Fallen(NamedTuple):
    """GPUs whose clocks fell, the level of the one that fell most, and why."""

    devices: list[int] | None
    level: Level
    few: bool
    """A quarter of the GPUs at most, so it is not what all of them do under less load."""
    note: str | None


def of_devices(levels: Levels) -> Fallen | None:
    """The GPUs whose clocks fell though they do not idle more; None where none did."""
    clocks = levels.get("sm_clock_mhz", {})
    known = {rank: level for rank, level in clocks.items() if rank is not None}
    fallen = {
        rank: level
        for rank, level in (known or clocks).items()
        if level.ratio <= -CLOCK_FALL_RATIO and not idles_more(levels, rank)
    }
    if not fallen:
        return None
    worst = min(fallen, key=lambda rank: (fallen[rank].ratio, rank or 0))
    few = len(known) > 1 and len(fallen) <= max(1, int(FEW_RATIO * len(known)))
    devices = sorted(rank for rank in fallen if rank is not None) or None
    return Fallen(devices, fallen[worst], few, why_throttled(levels, worst))


def why_throttled(levels: Levels, rank: int | None) -> str | None:
    """Reasons that became active behind the change, and the temperature there, in words."""
    said = []
    for metric, words in REASONS.items():
        level = levels.get(metric, {}).get(rank)
        if level is not None and level.late >= ACTIVE_RATIO and level.late >= level.early + ACTIVE_RATIO / 2:
            said.append(words)
    heat = levels.get("gpu_temperature_c", {}).get(rank)
    if said and heat is not None:
        said.append(f"{heat.late:.0f} C")
    return ", ".join(said) or None


def idles_more(levels: Levels, rank: int | None) -> bool:
    """Whether the GPU idled in clearly more samples than before."""
    idle = levels.get("throttle_idle_ratio", {}).get(rank)
    return idle is not None and idle.late >= idle.early + ACTIVE_RATIO
