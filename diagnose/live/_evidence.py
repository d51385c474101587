"""Settings that make PyTorch leave evidence, made in the process itself: which names count depends on its version.

Only what nobody set, and with PyTorch's own default sizes. They are read when the first process group is made, which is
after `import torch`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

NEW_NAMES = (2, 9)
"""From here on the older names of these variables print a warning."""


def prepare() -> None:
    """Flight recorder on, its dump on a time-out into the run folder."""
    import torch

    run = os.environ.get("DIAGNOSE_RUN")
    if not run or "RANK" not in os.environ:
        return
    new = _version(torch.__version__) >= NEW_NAMES
    dump = str(Path(run) / "flight" / "nccl_trace_rank_")
    _set("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", new)
    _set("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", dump, new)
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    Path(dump).parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _set(now: str, before: str, value: str, new: bool) -> None:
    if now not in os.environ and before not in os.environ:
        os.environ[now if new else before] = value


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
