"""Copies: direction and memory kind of every year's names, exposure, the blocked host."""

import pytest

from diagnose.analyses.copies import copies
from tests.analyses.rows import build, events, kernels

NOTHING = build("device_args", [])


def copy(name="Memcpy HtoD (Pageable -> Device)", start=0, end=100, **more):
    return {"name": name, "class": "copy", "category": "memcpy", "ts_ns": start, "end": end, **more}


def rows_of(rows, device_args=NOTHING):
    return copies(kernels(rows), device_args, events([])).to_pylist()


@pytest.mark.parametrize(
    ("name", "direction", "pageable"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d", True),
        ("Memcpy HtoD (Pinned -> Device)", "h2d", False),
        ("Memcpy DtoH (Device -> Pageable)", "d2h", True),
        ("Memcpy DtoH (Device -> Pinned)", "d2h", False),
        ("Memcpy DtoD (Device -> Device)", "d2d", None),
        ("Memcpy PtoP (Device -> Device)", "p2p", None),
        ("Memset (Device)", "memset", None),
        ("CopyHostToDevice", "h2d", None),
        ("CopyDeviceToHost", "d2h", None),
        ("CopyDeviceToDevice", "d2d", None),
        ("MEMORY_COPY_HOST_TO_DEVICE", "h2d", None),
        ("Memcpy HtoD (Host -> Device)", "h2d", None),
        ("FillBuffer", "memset", None),
        ("hipMemcpyAsync", "unknown", None),
    ],
)
def test_names(name, direction, pageable):
    (row,) = rows_of([copy(name)])

    assert (row["direction"], row["pageable"]) == (direction, pageable)


def test_exposed_is_what_no_kernel_covers():
    rows = rows_of(
        [
            copy(start=0, end=100),
            {"ts_ns": 20, "end": 50},
            {"ts_ns": 40, "end": 60, "class": "comm"},
            copy(start=10, end=90),  # another copy hides nothing
            {"ts_ns": 0, "end": 100, "rank": 1},  # nor does another rank
        ]
    )

    assert [row["exposed_ns"] for row in rows] == [60, 40]


def test_size_and_host():
    sizes = build("device_args", [{"event_id": 7, "size_bytes": 4096}, {"event_id": 8}])
    linked = {"launch_ns": 5, "launch_end_ns": 25}
    rows = rows_of([copy(event_id=7, **linked, op="aten::to"), copy(event_id=8)], sizes)

    assert [row["size_bytes"] for row in rows] == [4096, None]
    assert [row["host_blocked_ns"] for row in rows] == [20, None]
    assert [row["op"] for row in rows] == ["aten::to", None]


def test_kernels_are_no_copies():
    assert rows_of([{"ts_ns": 0, "end": 5}]) == []
    assert rows_of([]) == []
