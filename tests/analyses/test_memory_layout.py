"""Layouts of earlier states against an allocator played on a strip of memory; holes, segments, expandable pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses._layout import Layout, at_end, at_state
from diagnose.schema import INGESTED

MIB = 1 << 20
Row = dict[str, Any]


def table(name: str, rows: list[Row]) -> pa.Table:
    schema = INGESTED[name]
    return schema.build({c: [row.get(c) for row in rows] for c in schema.arrow.names})


def segment(address: int, size: int, **more: Any) -> Row:
    return {
        "rank": 0,
        "device": 0,
        "address": address,
        "size_bytes": size,
        "kind": "large",
        "expandable": False,
        **more,
    }


def event(action: str, address: int, size: int) -> Row:
    return {"rank": 0, "device": 0, "action": action, "address": address, "size_bytes": size}


def layout(state: int, events: list[Row], segments: list[Row], live: dict[int, int]) -> Layout:
    return at_state(
        state,
        table("allocations", events),
        table("segments", segments),
        np.array(list(live), dtype=np.uint64),
        np.array(list(live.values()), dtype=np.int64),
    )


def test_holes_between_blocks() -> None:
    found = layout(0, [], [segment(0, 100 * MIB)], {10 * MIB: 20 * MIB, 60 * MIB: 10 * MIB})
    assert sorted(found.hole_size.tolist()) == [10 * MIB, 30 * MIB, 30 * MIB]
    assert (found.stranded_bytes, found.cached_bytes, found.largest_hole_bytes) == (70 * MIB, 0, 30 * MIB)


def test_a_wholly_free_segment_is_cache() -> None:
    found = layout(0, [], [segment(0, 4 * MIB), segment(8 * MIB, 40 * MIB)], {0: 4 * MIB})
    assert (found.stranded_bytes, found.cached_bytes, found.largest_hole_bytes) == (0, 40 * MIB, 40 * MIB)


def test_what_is_not_split_off_is_no_hole() -> None:
    assert layout(0, [], [segment(0, 11 * MIB)], {0: 10 * MIB}).hole_size.tolist() == []
    assert layout(0, [], [segment(0, 11 * MIB)], {0: 10 * MIB - 512}).hole_size.tolist() == [MIB + 512]
    small = segment(0, 2 * MIB, kind="small")
    assert layout(0, [], [small], {0: MIB}).hole_size.tolist() == [MIB]
    grown = segment(0, 11 * MIB, expandable=True)
    assert layout(0, [], [grown], {0: 10 * MIB}).hole_size.tolist() == [MIB]


def test_segments_of_a_private_pool_serve_no_one_else() -> None:
    private = segment(0, 40 * MIB, pool="1,2")
    found = layout(0, [], [private, segment(64 * MIB, 4 * MIB)], {0: 4 * MIB})
    assert found.largest_hole_bytes == 4 * MIB and found.stranded_bytes == 36 * MIB


def test_segments_made_later_go_and_freed_ones_come_back() -> None:
    history = [event("alloc", 0, MIB), event("segment_free", 64 * MIB, 20 * MIB), event("segment_alloc", 0, 30 * MIB)]
    found = layout(0, history, [segment(0, 30 * MIB)], {})
    assert dict(zip(found.address.tolist(), found.size.tolist(), strict=True)) == {64 * MIB: 20 * MIB}


def test_pages_mapped_later_are_unmapped_again() -> None:
    history = [
        event("alloc", 0, MIB),
        event("segment_map", 20 * MIB, 20 * MIB),
        event("segment_unmap", 100 * MIB, 10 * MIB),
    ]
    found = layout(0, history, [segment(0, 40 * MIB, expandable=True)], {0: 5 * MIB})
    assert dict(zip(found.address.tolist(), found.size.tolist(), strict=True)) == {0: 20 * MIB, 100 * MIB: 10 * MIB}
    assert sorted(found.hole_size.tolist()) == [10 * MIB, 15 * MIB]


def test_recorded_blocks_are_taken_as_they_are() -> None:
    blocks = [
        {"segment": 0, "address": 0, "size_bytes": 10, "state": "active_allocated"},
        {"segment": 0, "address": 10, "size_bytes": 20, "state": "inactive"},
        {"segment": 64, "address": 64, "size_bytes": 5, "state": "active_pending_free"},
    ]
    found = at_end(table("segments", [segment(64, 5), segment(0, 30)]), table("blocks", blocks))
    assert found.hole_size.tolist() == [20] and found.live.tolist() == [5, 10]


@st.composite
def strips(draw: st.DrawFn) -> tuple[list[Row], dict[int, int]]:
    """Segments beside each other and blocks inside them, in units of 4 MiB, so that every gap is a hole."""
    segments, live, at = [], {}, 0
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 8))
        segments.append(segment(at * 4 * MIB, size * 4 * MIB))
        place = at
        while place < at + size:
            length = draw(st.integers(1, at + size - place))
            if draw(st.booleans()):
                live[place * 4 * MIB] = length * 4 * MIB
            place += length
        at += size + draw(st.integers(0, 2))
    return segments, live


@given(strips())
def test_any_strip_of_memory(strip: tuple[list[Row], dict[int, int]]) -> None:
    segments, live = strip
    found = layout(0, [], segments, live)
    cells = {a // (4 * MIB) + i for a, size in live.items() for i in range(size // (4 * MIB))}
    largest = stranded = cached = 0
    for one in segments:
        own = range(one["address"] // (4 * MIB), (one["address"] + one["size_bytes"]) // (4 * MIB))
        free = [cell not in cells for cell in own]
        runs = "".join("." if f else "x" for f in free).split("x")
        largest = max(largest, *(len(run) for run in runs))
        if all(free):
            cached += len(free)
        else:
            stranded += sum(free)
    unit = 4 * MIB
    assert (found.largest_hole_bytes, found.stranded_bytes, found.cached_bytes) == (
        largest * unit,
        stranded * unit,
        cached * unit,
    )
