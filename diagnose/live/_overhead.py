"""What the hook costs, measured in the running job: blocks of steps with it and without, in turns.

In a muted block the hook only counts the step: no record, no listener. Means of neighbouring blocks form pairs, so
that what changes slowly falls out; the first step of a block is left out. Who asked judges them (`_interval`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_PAIRS = 2000


class Overhead:
    """At most one measurement at a time."""

    def __init__(self) -> None:
        self.running = self.muted = False
        self.block_steps, self.wanted_pairs = 10, 0
        self._lengths: list[int] = []
        self._blocks: list[float] = []
        self._switch: Callable[[bool], None] | None = None

    def start(self, pairs: int, block_steps: int, switch: Callable[[bool], None]) -> None:
        """Begin; `switch(True)` mutes the listeners."""
        self.wanted_pairs, self.block_steps = min(max(1, pairs), MOST_PAIRS), min(max(2, block_steps), 1000)
        self._lengths, self._blocks, self._switch = [], [], switch
        self.muted, self.running = False, True

    def step_ended(self, length: int) -> bool:
        """Count a step of the present block; whether the next one is muted."""
        self._lengths.append(length)
        if len(self._lengths) > self.block_steps:
            kept = self._lengths[1:]
            self._blocks.append(sum(kept) / len(kept))
            self._lengths = []
            self.running = len(self._blocks) < 2 * self.wanted_pairs
            self.muted = self.running and not self.muted
            assert self._switch is not None
            self._switch(self.muted)
        return self.muted

    def state(self) -> dict[str, Any]:
        """Means per block in ns; the even ones are with the hook."""
        return {"running": self.running, "pairs": len(self._blocks) // 2, "wanted_pairs": self.wanted_pairs}

    def blocks(self) -> list[int]:
        """Block means in turns: with, without, with, ..."""
        return [round(b) for b in self._blocks]
