"""The live hook: a training process records its own steps, at a cost it measures and keeps below a budget.

In a script, or without touching it through `diagnose launch`:

    import diagnose.live
    diagnose.live.install("runs/today")

Nothing here raises into training, waits for the device, opens a port, or imports more than torch and the standard
library. What is recorded: docs/live.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from diagnose.live._boundary import errors, shielded

if TYPE_CHECKING:
    from diagnose.live._hook import Hook

__all__ = ["install", "moe", "phase", "status", "step", "uninstall"]

_hook: Hook | None = None


@shielded
def install(run: str | os.PathLike[str] | None = None, *, budget: float = 0.005, history: bool = True) -> None:
    """Record from now on, into the folder `run` (default: $DIAGNOSE_RUN); a second call changes nothing.

    `budget`: share of the step time that the hook may take on the training thread. Files are made at the end of the
    first step, so data loader workers and launchers, which never train, stay as they were.
    """
    global _hook  # noqa: PLW0603  one hook per process
    place = run if run is not None else os.environ.get("DIAGNOSE_RUN")
    if _hook is not None or not place:
        return
    from pathlib import Path

    from diagnose.live import _guard
    from diagnose.live._hook import Hook

    made = Hook(Path(place).absolute(), budget, history)
    made.install()
    _hook = made
    _guard.install()


def step() -> None:
    """A step of training ends here; from the first call on, only these calls end steps."""
    if _hook is not None:
        _hook.mark()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Time a part of the step: forward, checkpoint, or a name of your own (these are added up)."""
    began = time.perf_counter_ns()
    try:
        yield
    finally:
        if _hook is not None and _hook.active:
            _add_phase(str(name), time.perf_counter_ns() - began)


@shielded
def _add_phase(name: str, spent_ns: int) -> None:
    assert _hook is not None
    phases = _hook.meters.phases
    if name in phases or len(phases) < 32:
        phases[name] = phases.get(name, 0) + spent_ns


class _Moe:
    """Router loads that a script reports."""

    @shielded
    def observe(self, layer: object, counts: Any, dropped: Any = None) -> None:
        """Tokens each expert of `layer` was chosen for in this step (before any drop), and how many were dropped.

        `counts`: a tensor or a sequence of whole numbers, one per expert. A tensor on a device is copied without
        waiting. `dropped`: a whole number; None says that it is not known.
        """
        if _hook is not None and _hook.active:
            _hook.routers.observe(_hook.step + 1, layer, counts, dropped)


moe = _Moe()


def status() -> dict[str, Any]:
    """What the hook says about itself: steps, its cost, whether records are kept, errors it swallowed."""
    if _hook is None:
        return {"active": False, "errors_count": errors.count, "errors": errors.texts[-5:]}
    return shielded(_hook.status)() or {}


@shielded
def uninstall() -> None:
    """Stop recording; the files stay."""
    global _hook  # noqa: PLW0603
    if _hook is not None:
        _hook.uninstall()
        _hook = None
