"""What formulas miss of a memory peak, as a belief: activations off by a factor, the allocator's share, a constant.

residual = x * activations + share * total + offset + own,
x ~ N(0, 0.3), share ~ N(0.07, 0.07), offset ~ N(0, 3 GB), own ~ N(0, 9 % of the peak).
Cached and fragmented blocks grow with what is allocated: a share. Context, libraries and communicators do not: a
constant. One measured peak updates all three (linear Gaussian conditioning); the interval of any layout follows from
what is still unknown, so it is narrow for layouts like the measured one and wide for others. Spreads: reserved over
allocated memory in published runs is 1.0 to 1.2; a communicator holds tens to hundreds of MB and a job has up to ten;
peers that calibrate once are 5 to 10 % off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from diagnose.planner.memory import Memory

OWN_RATIO = 0.09
TWO_SIDED_95 = 2.0
PRIOR = (0.0, 0.07, 0.0)
Rows = tuple[tuple[float, ...], ...]


PRIOR_COVARIANCE: Rows = ((0.3**2, 0.0, 0.0), (0.0, 0.07**2, 0.0), (0.0, 0.0, 3e9**2))


@dataclass(frozen=True, slots=True)
class MemoryBelief:
    """Mean and covariance of (factor, share, offset); offset in bytes."""

    mean: tuple[float, ...] = PRIOR
    covariance: Rows = PRIOR_COVARIANCE

    @property
    def factor(self) -> float:
        """Activations off by this much of themselves."""
        return self.mean[0]

    def beyond_bytes(self, memory: Memory) -> float:
        """What allocator, context and communicators hold beyond the formulas."""
        return self.mean[1] * memory.total + self.mean[2]

    def residual_bytes(self, memory: Memory) -> float:
        """Expected bytes beyond the formulas for a layout whose formulas say `memory`."""
        return self.factor * memory.activations + self.beyond_bytes(memory)

    def half_width_bytes(self, memory: Memory) -> float:
        """Half of the interval that should hold 95 % of peaks."""
        own = (OWN_RATIO * (memory.total + self.beyond_bytes(memory))) ** 2
        return TWO_SIDED_95 * math.sqrt(max(0.0, self._variance(memory)) + own)

    def after(self, memory: Memory, measured: float) -> MemoryBelief:
        """The belief after one measured peak of a layout whose formulas say `memory`."""
        innovation = measured - memory.total - self.residual_bytes(memory)
        total = self._variance(memory) + (OWN_RATIO * measured) ** 2
        gain = [each / total for each in self._with(memory)]
        mean = [each + step * innovation for each, step in zip(self.mean, gain, strict=True)]
        mean[0] = max(-0.5, mean[0])
        rest = tuple(
            tuple(cell - gain[i] * gain[j] * total for j, cell in enumerate(row))
            for i, row in enumerate(self.covariance)
        )
        return MemoryBelief(tuple(mean), rest)

    def _with(self, memory: Memory) -> list[float]:
        """Covariance of each unknown with the residual of this layout."""
        weight = (memory.activations, memory.total, 1.0)
        return [sum(cell * each for cell, each in zip(row, weight, strict=True)) for row in self.covariance]

    def _variance(self, memory: Memory) -> float:
        weight = (memory.activations, memory.total, 1.0)
        return sum(cell * each for cell, each in zip(self._with(memory), weight, strict=True))
