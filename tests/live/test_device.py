"""Paths for a CUDA device against a fake one: device times without ever waiting, memory figures, copies of counts."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.hook_records import UNKNOWN
from diagnose.live._device import FREE_EVERY_PROBES, Device
from diagnose.live._router import Routers


class Event:
    """An event whose device is `lag` marks behind the host."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.at, self.recorded = cuda, 0.0, -1

    def record(self) -> None:
        self.recorded = self.cuda.marks
        self.cuda.marks += 1
        self.at = 10.0 * self.recorded

    def query(self) -> bool:
        return self.cuda.marks - 1 - self.recorded >= self.cuda.lag

    def elapsed_time(self, other: Event) -> float:
        assert self.query() and other.query(), "the device was not done: this would wait, or raise"
        return other.at - self.at

    def synchronize(self) -> None:
        raise AssertionError("nothing waits for the device")


class Cuda:
    """What of torch.cuda the hook uses; anything else fails the test."""

    def __init__(self, lag: int = 0) -> None:
        self.lag, self.marks, self.made, self.asked_free, self.capturing = lag, 0, 0, 0, False

    def Event(self, enable_timing: bool) -> Event:  # noqa: N802  torch's name
        assert enable_timing
        self.made += 1
        return Event(self)

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def memory_stats(self) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": 10, "reserved_bytes.all.current": 20, "allocated_bytes.all.peak": 15,
            "inactive_split_bytes.all.current": 3, "num_alloc_retries": 1,
        }  # fmt: skip

    def mem_get_info(self) -> tuple[int, int]:
        self.asked_free += 1
        return 30, 80


def test_a_step_is_read_one_step_later() -> None:
    device = Device(Cuda())

    assert [device.mark() for _ in range(5)] == [UNKNOWN, UNKNOWN, 10_000_000, 10_000_000, 10_000_000]


def test_a_device_that_lags_behind_is_not_waited_for() -> None:
    device = Device(Cuda(lag=3))

    assert {device.mark() for _ in range(6)} == {UNKNOWN}
    assert device.given_up_count == 4


def test_events_are_used_again() -> None:
    cuda = Cuda()
    device = Device(cuda)
    for _ in range(100):
        device.mark()

    assert cuda.made <= 3


def test_no_event_goes_into_a_graph() -> None:
    cuda = Cuda()
    device = Device(cuda)
    for _ in range(3):
        device.mark()
    cuda.capturing = True
    assert device.mark() == UNKNOWN
    before = cuda.marks
    device.mark()
    assert cuda.marks == before
    cuda.capturing = False

    assert [device.mark() for _ in range(3)] == [UNKNOWN, UNKNOWN, 10_000_000]


def test_memory_figures_and_what_the_allocator_does_not_say() -> None:
    cuda = Cuda()
    device = Device(cuda)
    for _ in range(FREE_EVERY_PROBES + 1):
        found = device.memory()

    assert found == {
        "memory_allocated_bytes": 10, "memory_reserved_bytes": 20, "peak_memory_allocated_bytes": 15,
        "memory_inactive_bytes": 3, "alloc_retries_count": 1, "ooms_count": UNKNOWN, "device_free_bytes": 30,
        "device_total_bytes": 80,
    }  # fmt: skip
    assert cuda.asked_free == 2


def test_without_a_device_nothing_is_known() -> None:
    assert Device(None).mark() == UNKNOWN
    assert Device(None).memory() == {}


class OnDevice:
    """Counts on a device: reading them would wait."""

    is_cuda, shape, dtype = True, (3,), "int64"

    def detach(self) -> OnDevice:
        return self

    def tolist(self) -> list[int]:
        raise AssertionError("nothing waits for the device")


class Pinned:
    def copy_(self, source: Any, non_blocking: bool) -> None:
        assert non_blocking and isinstance(source, OnDevice)

    def tolist(self) -> list[int]:
        return [1, 2, 3]


def test_counts_on_a_device_are_read_when_their_copy_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    arrived: list[bool] = [False]

    class Copied:
        def record(self) -> None:
            pass

        def query(self) -> bool:
            return arrived[0]

    monkeypatch.setattr(torch, "empty", lambda *a, **k: Pinned())
    monkeypatch.setattr(torch.cuda, "Event", Copied)
    routers = Routers()
    routers.observe(7, "layers.3", OnDevice())
    routers.ready()
    assert routers.take() == (0, 0, False, False)
    arrived[0] = True
    routers.ready()

    assert routers.take() == (6, 0, True, False)


def test_counts_in_memory_and_drops() -> None:
    routers = Routers()
    routers.observe(1, 0, [4, 4], dropped=2)
    routers.observe(1, "moe", (1, 3), dropped=None)
    routers.observe(1, 1, [], dropped=1)

    assert routers.take() == (12, 2, True, True)
