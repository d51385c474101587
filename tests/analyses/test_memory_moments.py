"""The state at the failure, not at the end; messages that join it; parts that sum; growth by its floor."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.analyses.holes import holes
from diagnose.analyses.lifetimes import lifetimes
from diagnose.analyses.memory import memory
from diagnose.analyses.memory_growth import memory_growth
from diagnose.analyses.memory_moments import memory_moments
from diagnose.analyses.memory_parts import memory_parts
from diagnose.schema import INGESTED, Tables

GIB, MIB = 1 << 30, 1 << 20
Row = dict[str, Any]


def table(name: str, rows: list[Row]) -> Any:
    schema = INGESTED[name]
    return schema.build({c: [row.get(c) for row in rows] for c in schema.arrow.names})


def failed_then_cleaned_up(**message: Any) -> Tables:
    """Ten live and ten free pieces of 2 MiB when a request of 8 MiB fails; all is freed before the dump."""
    at = {"rank": 0, "device": 0}
    events = [
        {**at, "action": "alloc", "address": i * 2 * MIB, "size_bytes": 2 * MIB, "stack": i % 2} for i in range(20)
    ]
    events += [
        {**at, "action": "free_completed", "address": i * 2 * MIB, "size_bytes": 2 * MIB} for i in range(1, 20, 2)
    ]
    events.append({**at, "action": "oom", "size_bytes": 8 * MIB, "device_free_bytes": MIB})
    events += [
        {**at, "action": "free_completed", "address": i * 2 * MIB, "size_bytes": 2 * MIB} for i in range(0, 20, 2)
    ]
    segment = {**at, "address": 0, "size_bytes": 40 * MIB, "kind": "large", "expandable": False, "pool": "0,0"}
    block = {**at, "segment": 0, "address": 0, "size_bytes": 40 * MIB, "state": "inactive"}
    said = {"rank": 0, "device": 0, "wording": "current", "allocator": "pytorch", "count": 1, "tried_bytes": 8 * MIB,
            "capacity_bytes": 64 * MIB, "free_bytes": MIB, "process_bytes": 60 * MIB, "allocated_bytes": 20 * MIB,
            "reserved_bytes": 40 * MIB, "unallocated_bytes": 20 * MIB}  # fmt: skip
    given = {
        "allocations": table("allocations", events),
        "segments": table("segments", [segment]),
        "blocks": table("blocks", [block]),
        "stacks": table("stacks", [{"stack": 0, "frames": "m.py:7 forward"}, {"stack": 1, "frames": "m.py:9 tmp"}]),
        "files": table("files", [{"rank": 0, "path": "s.pickle"}]),
    }
    return given | ({"oom_messages": table("oom_messages", [said | message])} if message is not None else {})


def moments(given: Tables) -> dict[str, Row]:
    lives = lifetimes(*(given[n] for n in ("allocations", "blocks", "stacks")))
    wanted = {n: given[n] for n in ("allocations", "files", "blocks", "segments", "oom_messages") if n in given}
    found = memory_moments(lifetimes=lives, **wanted)
    given |= {"lifetimes": lives, "memory_moments": found}
    return {f"{row['moment']}{row['failure'] or ''}": row for row in found.to_pylist()}


def test_the_state_is_that_of_the_failure() -> None:
    given = failed_then_cleaned_up()
    found = moments(given)
    assert (found["oom"]["allocated_bytes"], found["oom"]["stranded_bytes"]) == (20 * MIB, 20 * MIB)
    assert found["oom"]["largest_hole_bytes"] == 2 * MIB
    assert (found["peak"]["allocated_bytes"], found["end"]["allocated_bytes"]) == (40 * MIB, 0)
    assert found["end"]["cached_bytes"] == 40 * MIB
    (hole,) = holes(
        given["memory_moments"], given["lifetimes"], given["allocations"], given["blocks"], given["segments"]
    ).to_pylist()
    assert (hole["holes_count"], hole["pinned_by"], hole["pinned_count"]) == (10, "m.py:7 forward", 10)


def test_a_message_about_the_same_request_joins() -> None:
    found = moments(failed_then_cleaned_up())
    assert set(found) == {"oom", "peak", "end"}
    oom = found["oom"]
    assert oom["source"] == "snapshot, message" and oom["capacity_bytes"] == 64 * MIB
    assert (oom["non_torch_bytes"], oom["used_bytes"], oom["unaccounted_bytes"]) == (20 * MIB, 63 * MIB, 3 * MIB)
    assert found["end"]["capacity_bytes"] == 64 * MIB


@pytest.mark.parametrize("other", [{"tried_bytes": 9 * MIB}, {"rank": 1}])
def test_a_message_about_another_failure_stands_alone(other: Row) -> None:
    given = failed_then_cleaned_up(**other)
    rows = moments(given)
    assert len(given["memory_moments"]) == 4
    assert rows["oom"]["capacity_bytes"] is None or "rank" in other


def test_parts_sum_to_the_device_use_exactly() -> None:
    given = failed_then_cleaned_up()
    found = moments(given)
    parts = memory_parts(given["memory_moments"], given["lifetimes"]).to_pylist()
    whole = {"oom": found["oom"]["used_bytes"], "peak": 40 * MIB, "end": 40 * MIB}
    for moment, size in whole.items():
        assert sum(p["bytes"] for p in parts if p["moment"] == moment) == size, moment
    at_oom = {p["part"]: p["bytes"] for p in parts if p["moment"] == "oom"}
    assert at_oom == {"activations": 20 * MIB, "fragmentation": 20 * MIB, "non_torch": 23 * MIB}


def test_memory_over_time_never_leaves_the_device() -> None:
    given = failed_then_cleaned_up()
    moments(given)
    found = memory(given["lifetimes"], given["allocations"], given["blocks"], given["segments"]).to_pylist()
    assert [row["allocated_bytes"] // (2 * MIB) for row in found][:21] == list(range(21))
    assert all(0 <= row["allocated_bytes"] <= row["reserved_bytes"] == 40 * MIB for row in found)


def series(values: list[float], metric: str = "allocated_gib") -> Any:
    return table("series", [{"rank": 0, "step": i, "metric": metric, "value": v} for i, v in enumerate(values)])


def growth_of(values: list[float]) -> Row:
    (row,) = memory_growth(series=series(values)).to_pylist()
    return row


def test_a_leak_is_the_floor_that_rises() -> None:
    row = growth_of([10 + 0.25 * i + (3 if i % 7 == 0 else 0) for i in range(80)])
    assert row["shape"] == "growing" and row["slope_bytes"] == pytest.approx(0.25 * GIB, rel=0.02)


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([10.0] * 40, "flat"),
        ([10 + i % 8 for i in range(80)], "flat"),
        ([14.0, *[42.0] * 30], "jump"),
        ([20 - 0.1 * i for i in range(60)], "falling"),
        ([1.0, 2.0, 3.0], "short"),
    ],
    ids=["flat", "saw-tooth", "lazy state", "falling", "short"],
)
def test_what_is_no_leak(values: list[float], shape: str) -> None:
    assert growth_of(values)["shape"] == shape


def test_only_named_units_count() -> None:
    units = {"train/max_allocated(GiB)": GIB, "mem.allocated_mb": 10**6, "reserved_bytes": 1}
    for metric, unit in units.items():
        rows = memory(series=series([2.0, 2.0], metric)).to_pylist()
        sizes = [row[c] for row in rows for c in row if c.endswith("_bytes") and row[c] is not None]
        assert sizes == [2 * unit] * 2, metric
    for metric in ("allocated", "cpu_allocated_gib", "num_alloc_retries_gb", "loss_gib"):
        assert len(memory(series=series([2.0, 2.0], metric))) == 0, metric


def test_a_trace_without_totals_knows_only_what_it_saw_made() -> None:
    """Old traces and host memory: no share of "all" memory may be claimed."""
    for device, total, whole in ((0, None, False), (0, 50 * MIB, True), (-1, 50 * MIB, False)):
        at = {"rank": 0, "device": device, "event_id": 1, "address": 8, "size_bytes": MIB, "ts_ns": 1}
        events = table("allocations", [{**at, "action": "alloc", "allocated_bytes": total, "reserved_bytes": total}])
        lives = lifetimes(events)
        found = memory_moments(table("files", [{"rank": 0}]), lives, events)
        assert set(found["whole"].to_pylist()) == {whole}
        parts = memory_parts(found, lives).to_pylist()
        assert {row["whole"] for row in parts} == {whole}
        assert {row["bytes"] for row in parts} == {50 * MIB if whole else MIB}
