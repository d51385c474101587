"""Rows of the memory tables for rule tests: a failure, its parts, figures that grow."""

from __future__ import annotations

from typing import Any

GIB = 1 << 30
MIB = 1 << 20
Row = dict[str, Any]


def failure(**more: Any) -> Row:
    """A request of 1 GiB that failed on a device of 80 GiB, 60 allocated, 5 stranded, 13 free."""
    row: Row = {
        "rank": 0,
        "device": 0,
        "moment": "oom",
        "failure": 0,
        "source": "snapshot, message",
        "index": 5,
        "tried_bytes": GIB,
        "capacity_bytes": 80 * GIB,
        "device_free_bytes": 13 * GIB,
        "used_bytes": 67 * GIB,
        "allocated_bytes": 60 * GIB,
        "reserved_bytes": 65 * GIB,
        "unallocated_bytes": 5 * GIB,
        "stranded_bytes": 5 * GIB,
        "cached_bytes": 0,
        "private_free_bytes": 0,
        "recoverable_bytes": 18 * GIB,
        "largest_hole_bytes": 2 * GIB,
        "internal_bytes": GIB,
        "process_bytes": 66 * GIB,
        "non_torch_bytes": GIB,
        "unaccounted_bytes": 0,
        "allocator": "pytorch",
        "count": 1,
    }
    return row | more


def parts(moment: str = "oom", rank: int = 0, **sizes: int) -> list[Row]:
    """Rows of memory_parts: `activations=30 * GIB`, ...; `loss` is the share of the activations that the loss made."""
    loss = sizes.pop("loss", 0)
    return [
        {
            "rank": rank,
            "device": 0,
            "moment": moment,
            "failure": 0,
            "part": part,
            "bytes": size,
            "confidence_ratio": 0.8,
            "source": "snapshot: a test",
            "top_place": f"model.py:7 {part}",
            "top_bytes": size,
            "loss_bytes": loss if part == "activations" else 0,
            "loss_count": 2 if part == "activations" and loss else 0,
        }
        for part, size in sizes.items()
    ]


def growth(**more: Any) -> Row:
    """Allocated memory of rank 0 that is flat at 40 GiB over 100 steps."""
    row: Row = {
        "rank": 0,
        "figure": "allocated",
        "shape": "flat",
        "slope_bytes": 0,
        "first_step": 0,
        "last_step": 99,
        "steps_count": 100,
        "first_bytes": 40 * GIB,
        "last_bytes": 40 * GIB,
        "grown_bytes": 0,
        "rising_ratio": 0.0,
        "jump_bytes": 0,
        "jump_step": 1,
        "reserved_bytes": 50 * GIB,
        "used_bytes": 52 * GIB,
    }
    return row | more


def healthy() -> dict[str, list[Row]]:
    """A job that leaves room: two ranks alike, no failure, no growth, a little of everything."""
    peak = failure(moment="peak", tried_bytes=None, source="snapshot")
    mixed = {
        "parameters": 8 * GIB,
        "gradients": 8 * GIB,
        "optimizer": 12 * GIB,
        "activations": 28 * GIB,
        "comm_buffers": 4 * GIB,
        "fragmentation": 5 * GIB,
    }
    sample = {"device": 0, "source": "snapshot", "index": 3, "allocated_bytes": 60 * GIB, "reserved_bytes": 65 * GIB}
    return {
        "memory_moments": [failure(tried_bytes=GIB, largest_hole_bytes=2 * GIB), peak, {**peak, "rank": 1}],
        "memory_parts": [*parts("peak", **mixed), *parts("peak", 1, **mixed), *parts("oom", **mixed)],
        "memory_growth": [growth(), growth(figure="unallocated", first_bytes=5 * GIB, last_bytes=5 * GIB)],
        "memory": [{**sample, "rank": 0}, {**sample, "rank": 1}],
        "holes": [{"rank": 0, "device": 0, "moment": "oom", "free_bytes": 5 * GIB, "pinned_by": "model.py:7 forward"}],
        "log_events": [{"kind": "allocator_flushes", "count": 1, "detail": "1 allocator cache flush in 1 warning"}],
    }
