"""Capture by itself when the job's own records look wrong: slower than it was, or one rank that holds all others up.

Judged from the rings, outside the training processes. One capture per cool-down and a few per run, so that a job that
stays slow is not profiled all day. What a spike of one step is, is not: two looks in a row must agree.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from diagnose.live import watching

BASE_LOOKS = 5
"""Looks that make up the usual step before anything is judged."""
SLOWER_RATIO = 1.3
COOL_DOWN_S = 1800.0
MOST_CAPTURES = 3


class Anomalies:
    """Fed with the rows of `watching.rows`; says when a capture is due, and why."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.captures_count = 0
        self._clock = clock
        self._base: list[float] = []
        self._last: str = ""
        self._quiet_until = 0.0
        self._step = -1

    def look(self, rows: list[dict[str, Any]]) -> str:
        """Why a capture should start now; empty where it should not."""
        lengths = [r["step_ns"] for r in rows if r["step_ns"]]
        steps = [r["step"] for r in rows if r["step"] is not None]
        if not lengths or not steps or max(steps) < self._step + watching.RECENT // 4:
            return ""  # too little is new
        self._step = max(steps)
        usual = statistics.median(lengths)
        if len(self._base) < BASE_LOOKS:
            self._base.append(usual)
            return ""
        reason = self._reason(rows, usual)
        due = bool(reason) and reason.split(":")[0] == self._last.split(":")[0]
        self._last = reason
        if not due or self.captures_count >= MOST_CAPTURES or self._clock() < self._quiet_until:
            return ""
        self.captures_count += 1
        self._quiet_until = self._clock() + COOL_DOWN_S
        return reason

    def _reason(self, rows: list[dict[str, Any]], usual: float) -> str:
        base = statistics.median(self._base)
        if usual > SLOWER_RATIO * base:
            return f"slower: a step takes {usual / 1e6:.1f} ms, at first {base / 1e6:.1f} ms"
        slow = watching.slowest(rows)
        if slow is not None:
            return f"rank {slow['rank']}: works longer than the others, which wait for it"
        return ""
