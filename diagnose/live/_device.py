"""Figures of the device that cost no synchronise: step times by events, what the caching allocator counts.

A pair of events per step lies on the current stream; it is read a step later, and only if both have happened by then
(`query`), else it is given up: nothing ever waits for the device. The time between two events is what the stream took,
waiting in collectives included, and also the time it lay idle.
"""

from __future__ import annotations

from typing import Any

from diagnose.hook_records import UNKNOWN

FREE_EVERY_PROBES = 64
"""cudaMemGetInfo takes a lock of the driver: now and then only."""
MEMORY_FIELDS = (
    "memory_allocated_bytes", "memory_reserved_bytes", "peak_memory_allocated_bytes", "memory_inactive_bytes",
    "alloc_retries_count", "ooms_count", "device_free_bytes", "device_total_bytes",
)  # fmt: skip
_STATS = (
    "allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak",
    "inactive_split_bytes.all.current", "num_alloc_retries", "num_ooms",
)  # fmt: skip


class Device:
    """One process's device; `cuda` is `torch.cuda`, or None where there is none."""

    def __init__(self, cuda: Any | None) -> None:
        self.cuda = cuda
        self._pool: list[Any] = []
        self._last: Any | None = None
        self._pair: tuple[Any, Any] | None = None
        self._probes, self._free, self._total = 0, UNKNOWN, UNKNOWN
        self.given_up_count = 0

    @classmethod
    def of_process(cls) -> Device:
        """The device in use, without initialising CUDA for a process that does not use it."""
        import torch

        usable = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return cls(torch.cuda if usable else None)

    def mark(self) -> int:
        """Record the end of a step on the current stream; device time of the step before it, or UNKNOWN."""
        if self.cuda is None:
            return UNKNOWN
        if self.cuda.is_current_stream_capturing():  # an event in a graph would be part of the graph
            self._pair = self._last = None
            return UNKNOWN
        length = self._read()
        event = self._pool.pop() if self._pool else self.cuda.Event(enable_timing=True)
        event.record()
        if self._last is not None:
            self._pair = (self._last, event)
        self._last = event
        return length

    def _read(self) -> int:
        if self._pair is None:
            return UNKNOWN
        began, ended = self._pair
        self._pair = None
        self._pool.append(began)
        if not ended.query():  # the host runs ahead of the device by a whole step: not worth waiting for
            self.given_up_count += 1
            return UNKNOWN
        return int(began.elapsed_time(ended) * 1e6)

    def memory(self) -> dict[str, int]:
        """The allocator's figures by field; empty without a device."""
        if self.cuda is None:
            return {}
        stats = self.cuda.memory_stats()
        values = [int(stats[name]) if name in stats else UNKNOWN for name in _STATS]
        if self._probes % FREE_EVERY_PROBES == 0:
            self._free, self._total = self.cuda.mem_get_info()
        self._probes += 1
        return dict(zip(MEMORY_FIELDS, (*values, self._free, self._total), strict=True))
