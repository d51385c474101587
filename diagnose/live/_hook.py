"""The hook of one rank: finds the ends of steps and writes one record per step.

A step ends with the leading optimizer (the first that stepped) once a backward ran since the last end, with a step
that the gradient scaler skipped, or where the script says `step()`. Files, threads and sockets exist from the first
end of a step on, so that launchers and data loader workers, which never train, stay as they were.
"""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from typing import Any

from diagnose import hook_records as layout
from diagnose.hook_records import PLACE, UNKNOWN
from diagnose.live._boundary import errors, shielded
from diagnose.live._budget import Budget
from diagnose.live._capture import Capture
from diagnose.live._device import Device
from diagnose.live._overhead import Overhead
from diagnose.live._router import TOKENS, Routers
from diagnose.live._signals import Signals
from diagnose.live._store import Store

_now = time.perf_counter_ns
CLOCK_JUMP_NS = 500_000_000
CPU_EVERY_STEPS = 17
"""A prime, so that steps with dear figures are met as often as they occur."""
PHASES = ("forward", "backward", "optimizer", "checkpoint", "input")
_NOTHING = [UNKNOWN] * len(layout.FIELDS)
_STEP, _WALL, _MONO, _LENGTH, _INPUT, _OPTIMIZER, _GC, _GCS, _WAIT, _WAITS, _BACKWARD, _DEVICE, _HOOK, _CPU = (
    PLACE[name] for name in (
        "step", "end_wall_ns", "end_mono_ns", "step_time_ns", "input_time_ns", "optimizer_time_ns", "gc_time_ns",
        "gc_count", "wait_time_ns", "wait_count", "backward_time_ns", "previous_device_time_ns", "hook_time_ns",
        "hook_cpu_time_ns",
    )
)  # fmt: skip
_PROBES, _RECORDS, _FLAGS, _LOST, _ERRORS, _SKIPPED = (
    PLACE[name] for name in (
        "probe_every_count", "record_every_count", "flags", "lost_records_count", "hook_errors_count", "skipped_count",
    )
)  # fmt: skip


class Hook:
    """One per process. Everything that torch or the script calls is shielded."""

    def __init__(self, run: Path, budget_ratio: float = 0.005, history: bool = True, control: bool = True) -> None:
        self.run, self.wants_history, self.wants_control = run, history, control
        self.signals, self.routers = Signals(), Routers()
        self.meters = self.signals.meters
        self.budget, self.capture, self.overhead = Budget(budget_ratio), Capture(), Overhead()
        self.device: Device | None = None
        self.store: Store | None = None
        self.step, self.skipped_count, self.last_ns = 0, 0, 0
        self.active, self.user_steps = True, False
        self._leader: weakref.ref[Any] | None = None
        self._optimizer_began = self._hook_ns = self._wall_offset = 0
        self._memory: dict[str, int] = {}
        self._cpu_ns = UNKNOWN
        self._ends = (0, 0)
        self._statm = -1
        self._handles: list[Any] = []

    def install(self) -> None:
        """Listen; torch is imported."""
        from torch.optim import optimizer

        self.signals.install(self.scaler_stepped)
        for register, ours in (
            (optimizer.register_optimizer_step_pre_hook, self._before_optimizer),
            (optimizer.register_optimizer_step_post_hook, self._after_optimizer),
        ):
            self._handles.append(register(ours))
        os.register_at_fork(after_in_child=self._forked)

    def uninstall(self) -> None:
        """Stop recording and take everything out again; files stay."""
        self.active = False
        for handle in self._handles:
            shielded(handle.remove)()
        self._handles.clear()
        self.signals.remove()
        if self.store is not None:
            self.store.close()

    def _forked(self) -> None:
        """A child of a process that has not trained may be a rank itself; one of a rank is a worker, and inert."""
        if self.store is None:
            return
        self.active = False
        self.store.forget()
        for handle in self._handles:
            shielded(handle.remove)()
        self.signals.remove()

    # called by torch

    @shielded
    def _before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.active or errors.too_many or not self._leads(optimizer):
            return
        self._optimizer_began = _now()
        if self.signals.routers and (self.step + 1) % self.budget.probe_every == 0:
            for number, ((_, name), module) in enumerate(list(self.signals.routers.items())):
                counts = getattr(module(), name, None)
                if counts is not None:
                    self.routers.observe(self.step + 1, number, counts, key=TOKENS)
            self._hook_ns += _now() - self._optimizer_began

    @shielded
    def _after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.active or errors.too_many or not self._leads(optimizer):
            return
        now = _now()
        if self._optimizer_began:
            self.meters.optimizer_ns += now - self._optimizer_began
            self._optimizer_began = 0
        unheard = self.signals.paused  # while muted, each step of the leading optimizer ends a step
        if self.user_steps or (self.signals.backward_seen and not self.meters.backwards and not unheard):
            return
        self.boundary(now, 0)

    def scaler_stepped(self, optimizer: Any, call: Any) -> Any:
        """GradScaler.step around an optimizer: where the optimizer did not step, the step ends here all the same."""
        before = self.step
        result = call()
        if self.active and self.step == before and not self.user_steps:
            self._skipped(optimizer)
        return result

    @shielded
    def _skipped(self, optimizer: Any) -> None:
        if self._leads(optimizer) and self.meters.backwards:
            self.skipped_count += 1
            self.boundary(_now(), layout.SKIPPED)

    def _leads(self, optimizer: Any) -> bool:
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            self._leader = weakref.ref(optimizer)
            return True
        return leader is optimizer

    # called by the script

    @shielded
    def mark(self) -> None:
        """The script says that a step ends."""
        if self.active:
            self.user_steps = True
            self.boundary(_now(), layout.USER_STEP)

    # a step ends

    def boundary(self, now: int, flags: int) -> None:
        """Record the step that ends at `now`."""
        self.step += 1
        if self.store is None:
            self._start()
        length = now - self.last_ns if self.last_ns else UNKNOWN
        muted = self.overhead.running and self.overhead.step_ended(length)
        cpu = time.thread_time_ns() if self.step % CPU_EVERY_STEPS == 0 and not muted else 0
        if not muted and (self.step % self.budget.record_every == 0 or flags or self.capture.busy):
            self._record(now, length, flags, probe=self.step % self.budget.probe_every == 0)
        self._ends, self.last_ns = (self.last_ns, now), now
        self.meters.reset()
        if cpu:
            self._cpu_ns = time.thread_time_ns() - cpu
        spent = self._hook_ns if self.step > 2 else 0  # opening files is no cost of a step
        if length > 0 and self.budget.add(spent, length) and self.store is not None:
            said = f"figures every {self.budget.probe_every} steps, records every {self.budget.record_every}"
            self.store.note("throttled", self.step, f"own time {self.budget.share:.2%} of the step; {said}")
        self._hook_ns = _now() - now
        if self.capture.busy:  # no cost of the hook: somebody asked for it
            self.capture.step_ended(self.step)
            self.last_ns = _now()
            self._ends = (0, 0)

    def _start(self) -> None:
        """First end of a step: this process trains."""
        import threading

        self.meters.thread = threading.get_ident()
        self.store = Store(self)
        self.device = Device.of_process()
        self._wall_offset = time.time_ns() - _now()
        self.signals.listen_to_waits()
        self._listen_to_ddp()
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def _listen_to_ddp(self) -> None:
        """DDP times each iteration where its timers are the host's; on a device it would have to wait for events."""
        module = self.signals.ddp() if self.signals.ddp is not None else None
        if module is not None and all(p.device.type == "cpu" for p in module.parameters()):
            module._set_ddp_runtime_logging_sample_rate(1)

    def _record(self, now: int, length: int, flags: int, probe: bool) -> None:
        assert self.store is not None and self.device is not None
        wall, meters = time.time_ns(), self.meters
        offset = wall - _now()
        if abs(offset - self._wall_offset) > CLOCK_JUMP_NS:
            moved = (offset - self._wall_offset) / 1e9
            self.store.note("clock_jump", self.step, f"the wall clock moved by {moved:+.3f} s")
            flags |= layout.CLOCK_JUMP
        self._wall_offset = offset
        flags |= layout.CAPTURE if self.capture.running else 0
        flags |= layout.HISTORY_FAILED if self.store.failed else 0
        values = _NOTHING.copy()
        values[_STEP], values[_WALL], values[_MONO], values[_LENGTH] = self.step, wall, now, length
        if length != UNKNOWN:  # before the first end of a step, times would be those of starting up
            values[_INPUT], values[_OPTIMIZER] = meters.input_ns, meters.optimizer_ns
            values[_GC], values[_GCS], values[_WAIT], values[_WAITS] = (
                meters.gc_ns, meters.gc_count, meters.wait_ns, meters.wait_count
            )  # fmt: skip
            if self.signals.backward_seen:
                values[_BACKWARD] = meters.backward_ns
            if meters.phases:
                self._put_phases(values)
        values[_DEVICE] = self.device.mark()
        values[_HOOK], values[_CPU], self._cpu_ns = self._hook_ns, self._cpu_ns, UNKNOWN
        values[_PROBES], values[_RECORDS] = self.budget.probe_every, self.budget.record_every
        values[_FLAGS], values[_LOST], values[_ERRORS] = flags, self.store.lost_count, errors.count
        values[_SKIPPED] = self.skipped_count
        if probe:
            self._probe(values)
        self.store.put(values, wall)

    def _put_phases(self, values: list[int]) -> None:
        for name, spent in self.meters.phases.items():
            place = PLACE[f"{name}_time_ns" if name in PHASES else "other_phase_time_ns"]
            values[place] = spent + (0 if values[place] == UNKNOWN or name in PHASES else values[place])

    def _probe(self, values: list[int]) -> None:
        """The dearer figures."""
        assert self.device is not None
        for name, value in self.device.memory().items():
            values[PLACE[name]] = value
        values[PLACE["host_memory_bytes"]] = int(os.pread(self._statm, 64, 0).split()[1]) * 4096
        values[PLACE["previous_ddp_comm_time_ns"]] = self._ddp_comm()
        from torch.autograd.profiler import KinetoStepTracker

        values[PLACE["profiler_step"]] = KinetoStepTracker.current_step()
        self.routers.ready()
        routed, dropped, seen, dropped_known = self.routers.take()
        if seen:
            values[PLACE["routed_count"]] = routed
        if dropped_known:
            values[PLACE["dropped_count"]] = dropped

    def _ddp_comm(self) -> int:
        """Exposed communication of DDP in the step before: its log is filled when the next forward begins."""
        module = self.signals.ddp() if self.signals.ddp is not None else None
        if module is None:
            return UNKNOWN
        data = module._get_ddp_logging_data()
        ended, spent = data.get("backward_comm_time_end", 0) - self._wall_offset, data.get("backward_comm_time", 0)
        if not self._ends[0] < ended <= self._ends[1] or spent <= 0:
            return UNKNOWN
        return int(spent - data.get("backward_compute_comm_overlap_time", 0))

    def status(self) -> dict[str, Any]:
        """What the hook knows about itself."""
        return {
            "active": self.active, "step": self.step, "skipped_count": self.skipped_count,
            "age_ns": _now() - self.last_ns if self.last_ns else None,
            "hook_ratio": round(self.budget.share, 6), "budget_ratio": self.budget.ratio,
            "probe_every": self.budget.probe_every, "record_every": self.budget.record_every,
            "history": "off" if self.store is None else self.store.state(), "capture": self.capture.state(),
            "overhead": self.overhead.state(), "errors_count": errors.count, "errors": errors.texts[-5:],
        }  # fmt: skip
