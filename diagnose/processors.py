"""How many processors this process may use."""

from __future__ import annotations

import os


def usable() -> int:
    """At least 1; less than the machine has where a scheduler pinned the process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
