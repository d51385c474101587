"""Before the process ends: a capture of Kineto that is under way must be cancelled, or the process crashes.

torch 2.13 dies with SIGSEGV when it exits during an on-demand capture. Starting a profiler of one's own cancels it.
Who captures leaves a mark in the private folder, so that a process that is not being captured pays nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from diagnose.live._boundary import shielded

MARK = "capturing"
"""File beside Kineto's socket while a capture is asked for or under way."""


def install() -> None:
    """Cancel at exit, if this process was started with on-demand captures."""
    if os.environ.get("KINETO_USE_DAEMON") and os.environ.get("KINETO_IPC_SOCKET_DIR"):
        atexit.register(_cancel)


@shielded
def _cancel() -> None:
    if "RANK" not in os.environ and "torch.distributed.run" in sys.modules:
        return  # the launcher: it never trains
    if (Path(os.environ["KINETO_IPC_SOCKET_DIR"]) / MARK).exists():
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]):
            pass
