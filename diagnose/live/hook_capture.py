"""A capture of the same steps on several ranks through the hook: all ranks are armed, or none captures.

The hook starts and stops PyTorch's profiler on the training thread, which stalls it for some tenths of a second at the
end of a capture; Kineto's own way does not, so this one is for jobs that were started without it.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from diagnose.live import asking
from diagnose.live.kineto_capture import Outcome
from diagnose.live.ranks import Rank

MARGIN_S = 1.0
FINAL = ("done", "cancelled", "failed")


def capture(
    folder: Path, ranks: list[Rank], steps: int, extra: dict[str, bool], seconds: float, step_ns: int | None
) -> Outcome:
    """Capture `steps` steps on `ranks`; traces lie in `folder`."""
    now = asking.ask_all(ranks, verb="status")
    silent = [f"rank {r.rank}: {a['error']}" for r, a in zip(ranks, now, strict=True) if "error" in a]
    if silent:
        return Outcome({}, [*silent, "nothing was captured: all chosen ranks must answer"], None)
    start = max(a["step"] for a in now) + 2 + math.ceil(MARGIN_S * 1e9 / max(step_ns or 0, 1_000_000))
    names = {"shapes": "record_shapes", "stack": "with_stack", "flops": "with_flops", "modules": "with_modules"}
    plan: dict[str, Any] = {names[k]: True for k, wanted in extra.items() if wanted and k in names}
    plan |= {"id": folder.name, "start": start, "steps": steps, "seconds": seconds}
    answers = asking.ask_all(ranks, verb="capture", **plan)
    refused = [f"rank {r.rank}: {a['error']}" for r, a in zip(ranks, answers, strict=True) if "error" in a]
    if refused:
        asking.ask_all(ranks, verb="cancel")
        return Outcome({}, [*refused, "no rank was captured: all or none"], start)
    return _collect(folder, ranks, seconds, start)


def _collect(folder: Path, ranks: list[Rank], seconds: float, start: int) -> Outcome:
    until, states = time.monotonic() + seconds + 30, {r.rank: "armed" for r in ranks}
    while time.monotonic() < until and not all(s.startswith(FINAL) for s in states.values()):
        time.sleep(0.3)
        for rank, answer in zip(ranks, asking.ask_all(ranks, verb="status"), strict=True):
            told = answer.get("capture", {})
            gone = "error" in answer and not Path(f"/proc/{rank.process}").exists()
            states[rank.rank] = "failed: the process ended" if gone else str(told.get("state", states[rank.rank]))
    files = {r: folder / f"rank{r:05d}.json" for r, s in states.items() if s == "done"}
    problems = [f"rank {r}: {s}" for r, s in sorted(states.items()) if s != "done"]
    return Outcome({r: f for r, f in files.items() if f.is_file()}, problems, start)
