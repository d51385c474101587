"""varying-bandwidth: one size at two speeds on a group that may cross nodes, and not because a rank came late."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, Row, call, finding, quiet, spans, step, tables, turns_exactly_at


def reduce(dur_ns: int, **more: Any) -> Row:
    return call("all_reduce", dur_ns, size_bytes=32 * MIB, busbw_bytes_per_s=1e17 / dur_ns, group="0", **more)


def job(slow: int = 3, fast: int = 27, nodes: int | None = None, slow_ns: int = 6 * MS, **more: Any) -> Tables:
    durations = [slow_ns if i % 10 == 5 and i // 10 < slow else 600_000 for i in range(slow + fast)]
    groups = [{"group": "0", "size": 16, "dim": "dp", "node_count": nodes}]
    calls = [reduce(dur, event_id=i, ts_ns=i * 10 * MS, **more) for i, dur in enumerate(durations)]
    return tables(spans=spans(step(compute_ns=150 * MS, comm_ns=50 * MS)), collectives=calls, groups=groups)


def fires() -> Tables:
    return job()


def test_two_speeds_for_one_size() -> None:
    found = finding("varying-bandwidth", fires())
    assert (found.severity, found.lost_ns) == ("info", 3 * (6 * MS - 600_000))
    assert (found.evidence["slow_count"], found.evidence["calls_count"], found.evidence["times"]) == (3, 30, "10.0")
    assert found.evidence["p5_busbw_bytes_per_s"] < found.evidence["p50_busbw_bytes_per_s"] / 5
    assert "one rank does not show" in found.summary, "it may have waited"


def test_with_waiting_left_out_it_is_the_network() -> None:
    given = job(nodes=2)
    rows = given["collectives"].to_pylist()
    for i, row in enumerate(rows):
        row |= {"match": i, "transfer_ns": row["dur_ns"], "wait_ns": 0, "exposed_wait_ns": 0}
    both = [{**row, "rank": rank} for row in rows for rank in (0, 1)]
    matched = tables(spans=given["spans"].to_pylist(), collectives=both, groups=given["groups"].to_pylist())
    found = finding("varying-bandwidth", matched)
    assert (found.severity, found.evidence["calls_count"]) == ("warning", 30)
    assert "congestion is suspected" in found.summary and "one rank" not in found.summary
    for row in both:  # the same durations, all of it waiting
        row |= {"transfer_ns": 600_000, "wait_ns": row["dur_ns"] - 600_000}
    quiet("varying-bandwidth", matched | {"collectives": tables(collectives=both)["collectives"]})


def test_thresholds() -> None:
    measured = {"min_calls_count": 30, "min_slow_count": 3, "min_slowdown_ratio": 10.0, "min_size_bytes": 32 * MIB}
    for name, value in measured.items():
        turns_exactly_at("varying-bandwidth", fires(), **{name: value})
    turns_exactly_at("varying-bandwidth", fires(), min_share_ratio=3 * 5_400_000 / (200 * MS))


def test_one_node_has_no_network() -> None:
    quiet("varying-bandwidth", job(nodes=1))


def test_the_first_call_of_a_group_may_set_up_connections() -> None:
    given = job(slow=0)
    calls = given["collectives"].to_pylist()
    for row in (calls[0], calls[7]):
        row["dur_ns"] = row["exposed_ns"] = 6 * MS
    slow = given | {"collectives": tables(collectives=calls)["collectives"]}
    quiet("varying-bandwidth", slow)
    finding("varying-bandwidth", slow, min_slow_count=0)


def test_a_spread_without_a_gap_is_something_else() -> None:
    given = job()
    calls = given["collectives"].to_pylist()
    for i, row in enumerate(calls[10:18]):
        row["dur_ns"] = 1_000_000 + 80_000 * i
    quiet("varying-bandwidth", given | {"collectives": tables(collectives=calls)["collectives"]})
