"""The hook keeps itself within a share of the step time: dear figures rarer first, then whole records rarer.

Judged over windows of steps by the hook's own timer on the training thread. It turns itself up again where there is
room, one notch a window.
"""

from __future__ import annotations

WINDOW_STEPS = 32
MOST_EVERY = 1024
ROOM_RATIO = 0.25
"""Below this share of the budget there is room for figures twice as often."""


class Budget:
    """How often to probe and to record, from the cost so far."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.probe_every, self.record_every = 1, 1
        self.hook_ns, self.step_ns, self._steps = 0, 0, 0
        self.share = 0.0
        """Of the last whole window."""

    def add(self, hook_ns: int, step_ns: int) -> bool:
        """Count one step; True where the frequency has changed."""
        self.hook_ns += hook_ns
        self.step_ns += step_ns
        self._steps += 1
        if self._steps < WINDOW_STEPS:
            return False
        self.share = self.hook_ns / self.step_ns if self.step_ns > 0 else 0.0
        before = self.probe_every, self.record_every
        if self.share > self.ratio:
            if self.probe_every < MOST_EVERY:
                self.probe_every *= 2 if self.share < 4 * self.ratio else 8
                self.probe_every = min(self.probe_every, MOST_EVERY)
            else:
                self.record_every = min(2 * self.record_every, MOST_EVERY)
        elif self.share < ROOM_RATIO * self.ratio:
            if self.record_every > 1:
                self.record_every //= 2
            else:
                self.probe_every = max(1, self.probe_every // 2)
        self.hook_ns = self.step_ns = self._steps = 0
        return before != (self.probe_every, self.record_every)
