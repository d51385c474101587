"""What the hook listens to, each with a way to stop: garbage collection, data loader, backward, waits, gradient scaler.

Only cheap things sit in the loop: two clock reads around calls that happen a few times a step. No forward hook
anywhere (added after torch.compile it would never run), no wrapper around collectives (DDP, DTensor and functional
collectives would pass by it); what PyTorch offers as registration hooks is used to learn of DDP modules and routers
when they are built.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from diagnose.live._boundary import shielded

_now = time.perf_counter_ns
ROUTER_BUFFERS = ("tokens_per_expert", "local_tokens_per_expert")
"""Counters that routers keep themselves: torchtitan's, and Megatron-LM's with expert bias."""
MOST_ROUTERS = 512
BLOCKING_BACKENDS = ("gloo", "mpi")
"""Backends whose Work.wait blocks the host; NCCL's only orders streams."""


class Meters:
    """Times and counts since the last boundary; plain attributes, because they are written in the hot loop."""

    __slots__ = (
        "backward_ns", "backwards", "gc_count", "gc_ns", "input_ns", "optimizer_ns", "phases", "thread", "wait_count",
        "wait_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.thread = 0
        self.phases: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Begin a step."""
        self.input_ns = self.backward_ns = self.backwards = self.optimizer_ns = 0
        self.gc_ns = self.gc_count = self.wait_ns = self.wait_count = 0
        if self.phases:
            self.phases = {}

    def mine(self) -> bool:
        """Whether this is the thread that trains (or no step has told yet which one does)."""
        return self.thread in (0, threading.get_ident())


class Signals:
    """Installed listeners. `remove` takes them out again where nobody wrapped them since."""

    def __init__(self) -> None:
        self.meters = Meters()
        self.backward_seen = self.paused = False
        self.ddp: weakref.ref[Any] | None = None
        self.routers: dict[tuple[int, str], weakref.ref[Any]] = {}
        """Modules with counters of their own, by identity and name of the counter, in the order they were built."""
        self._removers: list[Callable[[], None]] = []
        self._wrapped: list[tuple[Any, str, Any, Any]] = []
        self._gc_began = 0

    def install(self, scaler_stepped: Callable[[Any, Callable[[], Any]], Any]) -> None:
        """Everything that can be listened to from the start; torch must have been imported."""
        import torch
        from torch.nn.modules import module
        from torch.utils.data import dataloader

        gc.callbacks.append(self._collected)
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", self._timed_input)
        self._wrap(torch.autograd, "backward", self._timed_backward)
        self._wrap(torch.amp.grad_scaler.GradScaler, "step", lambda inner: _scaler(inner, scaler_stepped))
        handles = [
            module.register_module_module_registration_hook(self._module_added),
            module.register_module_buffer_registration_hook(self._buffer_added),
        ]
        self._removers += [handle.remove for handle in handles]

    def listen_to_waits(self) -> bool:
        """Time Work.wait, if the job's backend blocks the host in it."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return False
        if not any(name in dist.get_backend() for name in BLOCKING_BACKENDS):
            return False
        from torch._C._distributed_c10d import Work

        self._wrap(Work, "wait", self._timed_wait)
        return True

    def remove(self) -> None:
        """Take out all listeners."""
        self.pause()
        for remover in reversed(self._removers):
            shielded(remover)()
        self._removers.clear()
        self._wrapped.clear()

    def pause(self) -> None:
        """Calls go straight to torch, where nobody wrapped them since."""
        self.paused = True
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
        for owner, name, inner, outer in self._wrapped:
            if getattr(owner, name) is outer:
                setattr(owner, name, inner)

    def resume(self) -> None:
        """Listen again."""
        self.paused = False
        if self._collected not in gc.callbacks:
            gc.callbacks.append(self._collected)
        for owner, name, inner, outer in self._wrapped:
            if getattr(owner, name) is inner:
                setattr(owner, name, outer)

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        inner = getattr(owner, name)
        outer = make(inner)
        outer.__name__, outer.__doc__, outer.__wrapped__ = name, inner.__doc__, inner
        setattr(owner, name, outer)
        self._wrapped.append((owner, name, inner, outer))

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = _now()
        elif self._gc_began and self.meters.mine():
            self.meters.gc_ns += _now() - self._gc_began
            self.meters.gc_count += 1

    def _timed_input(self, inner: Any) -> Any:
        meters = self.meters

        def following(loader: Any) -> Any:
            began = _now()
            try:
                return inner(loader)
            finally:
                if meters.mine():
                    meters.input_ns += _now() - began

        return following

    def _timed_backward(self, inner: Any) -> Any:
        meters = self.meters

        def backward(*args: Any, **kwargs: Any) -> Any:
            began = _now()
            try:
                return inner(*args, **kwargs)
            finally:
                self.backward_seen = True
                meters.backwards += 1
                meters.backward_ns += _now() - began

        return backward

    def _timed_wait(self, inner: Any) -> Any:
        meters = self.meters

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            began = _now()
            try:
                return inner(work, *args, **kwargs)
            finally:
                if meters.mine():
                    meters.wait_ns += _now() - began
                    meters.wait_count += 1

        return wait

    def _module_added(self, module: Any, name: str, child: Any) -> None:
        if name == "module" and type(module).__name__ == "DistributedDataParallel":
            self.ddp = weakref.ref(module)

    def _buffer_added(self, module: Any, name: str, buffer: Any) -> None:
        if name in ROUTER_BUFFERS and len(self.routers) < MOST_ROUTERS:  # told again when the buffer is replaced
            self.routers[id(module), name] = weakref.ref(module)


def _scaler(inner: Any, stepped: Callable[[Any, Callable[[], Any]], Any]) -> Any:
    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return stepped(optimizer, lambda: inner(scaler, optimizer, *args, **kwargs))

    return step
