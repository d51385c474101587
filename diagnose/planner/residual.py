"""What formulas miss of a memory peak, as a belief: activations off by a factor, a constant on top, and each
layout's own.

residual = x * activations + offset + own,  x ~ N(0, 0.3), offset ~ N(5 GB, 5 GB), own ~ N(0, 9 % of the peak).
One measured peak updates x and offset (linear Gaussian conditioning); the interval of any layout follows from what is
still unknown, so it is narrow for layouts like the measured one and wide for others. Spreads: BLOOM's pre-study and
nanotron exceed the closed formulas by 8 to 20 GB, growing with activations; peers that calibrate once are 5 to 10 %
off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from diagnose.planner.memory import Memory

OWN_RATIO = 0.09
TWO_SIDED_95 = 2.0


@dataclass(frozen=True, slots=True)
class MemoryBelief:
    """Mean and covariance of (x, offset); offset in bytes."""

    factor: float = 0.0
    offset_bytes: float = 5e9
    factor_variance: float = 0.3**2
    offset_variance: float = 5e9**2
    covariance: float = 0.0

    def residual_bytes(self, memory: Memory) -> float:
        """Expected bytes beyond the formulas for a layout whose formulas say `memory`."""
        return self.factor * memory.activations + self.offset_bytes

    def half_width_bytes(self, memory: Memory) -> float:
        """Half of the interval that should hold 95 % of peaks."""
        own = (OWN_RATIO * (memory.total + self.offset_bytes)) ** 2
        return TWO_SIDED_95 * math.sqrt(max(0.0, self._variance(memory.activations)) + own)

    def after(self, memory: Memory, measured: float) -> MemoryBelief:
        """The belief after one measured peak of a layout whose formulas say `memory`."""
        act = memory.activations
        innovation = measured - memory.total - self.residual_bytes(memory)
        total = self._variance(act) + (OWN_RATIO * measured) ** 2
        gain_factor = (self.factor_variance * act + self.covariance) / total
        gain_offset = (self.covariance * act + self.offset_variance) / total
        return MemoryBelief(
            factor=max(-0.5, self.factor + gain_factor * innovation),
            offset_bytes=self.offset_bytes + gain_offset * innovation,
            factor_variance=self.factor_variance - gain_factor**2 * total,
            offset_variance=self.offset_variance - gain_offset**2 * total,
            covariance=self.covariance - gain_factor * gain_offset * total,
        )

    def _variance(self, activations: float) -> float:
        return self.factor_variance * activations**2 + 2 * self.covariance * activations + self.offset_variance
