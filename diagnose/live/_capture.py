"""A profiler capture inside the process: started and stopped on the training thread at the ends of steps.

Used where Kineto's own on-demand way is not there (it stalls less: see `kineto_ipc`). A capture is bounded in steps
and time, never starts while the script's own profiler runs, and is stopped before the process ends. The file is
written by a thread of its own, under its name only when whole.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

from diagnose.live._boundary import shielded

MOST_STEPS = 50
MOST_SECONDS = 600.0
OPTIONS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class Capture:
    """At most one capture at a time."""

    def __init__(self) -> None:
        self.busy = self.running = False
        self._plan: dict[str, Any] = {"state": "none"}
        self._profiler: Any = None
        self._range: Any = None
        self._path = Path()
        self._writer: threading.Thread | None = None

    def arm(self, plan: dict[str, Any], path: Path, step: int) -> str:
        """Plan a capture; empty where accepted, else why not. `plan`: id, start, steps, options, seconds."""
        import torch

        if self.busy or self._plan["state"] == "exporting":
            return "busy: another capture is under way"
        if torch._C._autograd._profiler_enabled():
            return "busy: the script's own profiler runs"
        if plan["start"] <= step + 1:
            return f"late: step {step} has already ended"
        self._plan, self._path = plan | {"state": "armed", "until": time.monotonic() + plan["seconds"]}, path
        self.busy = True
        return ""

    def cancel(self) -> None:
        """Forget an armed capture; a running one ends with its next step."""
        if self._plan["state"] == "armed":
            self._plan["state"], self.busy = "cancelled", False
        elif self._plan["state"] == "running":
            self._plan["steps"] = 0

    def step_ended(self, step: int) -> None:
        """Training thread, after step `step`."""
        plan = self._plan
        late = time.monotonic() > plan["until"]
        if plan["state"] == "armed":
            if late:
                plan["state"], self.busy = "failed: no step in time", False
            elif step + 1 >= plan["start"]:
                self._begin(step)
        elif plan["state"] == "running":
            self._range.__exit__(None, None, None)
            if late or step + 1 >= plan["began"] + plan["steps"]:
                self._end(step)
            else:
                self._name(step + 1)

    def _begin(self, step: int) -> None:
        from torch.profiler import profile, supported_activities

        plan = self._plan
        plan["state"], self.busy = "failed: the profiler did not start", False
        activities = supported_activities()  # type: ignore[no-untyped-call]
        self._profiler = profile(activities=activities, **plan["options"])
        self._profiler.start()
        plan["state"], plan["began"], self.busy, self.running = "running", step + 1, True, True
        self._name(step + 1)

    def _name(self, step: int) -> None:
        from torch.profiler import record_function

        self._range = record_function(f"ProfilerStep#{step}")
        self._range.__enter__()

    def _end(self, step: int) -> None:
        plan, profiler = self._plan, self._profiler
        self.busy = self.running = False
        self._profiler = None
        plan["state"] = "failed: the profiler did not stop"
        profiler.stop()
        plan["state"], plan["ended"] = "exporting", step
        self._writer = threading.Thread(target=self._export, args=(profiler,), daemon=True, name="diagnose-export")
        self._writer.start()

    def _export(self, profiler: Any) -> None:
        self._plan["state"] = "failed: the trace could not be written" if self._write(profiler) is None else "done"

    @shielded
    def _write(self, profiler: Any) -> bool:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".tmp")
        profiler.export_chrome_trace(str(partial))
        partial.replace(self._path)
        return True

    def close(self) -> None:
        """The process ends: a profiler that still runs would crash it."""
        if self.running and self._profiler is not None:
            self._range.__exit__(None, None, None)
            self.busy = self.running = False
            self._profiler.stop()
            self._plan["state"] = "failed: the job ended"
        if self._writer is not None:
            self._writer.join(timeout=20)

    def state(self) -> dict[str, Any]:
        """id, state, first and last step."""
        shown = ("id", "state", "start", "steps", "began", "ended")
        return {key: self._plan[key] for key in shown if key in self._plan}
