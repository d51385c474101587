"""exchanges, expert_rounds and cold_calls on calls written by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from diagnose.analyses import calls_on_device, cold_calls, collectives, exchanges, expert_rounds, matches, moe_setup
from tests.analyses import rows as made

Row = dict[str, Any]
SETUP = moe_setup.SCHEMA.build({"evidence": ["test"]})


def tables(*calls: Row) -> dict[str, pa.Table]:
    """Tables of all-to-alls of an expert-parallel group of two ranks; `match` numbers calls across ranks."""
    base = {
        "step": 1,
        "dim": "ep",
        "op": "all_to_all",
        "dtype": "bfloat16",
        "group": "e",
        "dur_ns": 10,
        "exposed_ns": 10,
    }
    full = [{"event_id": n, "rank": 0, **base, **call} for n, call in enumerate(calls)]
    for row in full:
        row.setdefault("size_bytes", 1000)
        row.setdefault("received_bytes", row["size_bytes"])
    meets = [{"match": r.get("match"), "expected_count": 2, "rank": r["rank"]} for r in full]

    def of(schema: Any, given: list[Row]) -> pa.Table:
        return made.build(schema, [{k: v for k, v in row.items() if k in schema.arrow.names} for row in given])

    return {
        "moe_setup": SETUP, "calls_on_device": of(calls_on_device.SCHEMA, full),
        "collectives": of(collectives.SCHEMA, full), "matches": of(matches.SCHEMA, meets),
    }  # fmt: skip


def ways(*calls: Row, **more: Any) -> list[tuple[str, int | None]]:
    found = exchanges.exchanges(**tables(*calls), **more).to_pylist()
    return [(row["way"], row["place"]) for row in found]


def test_plain_all_to_alls_go_out_and_back_in_turn() -> None:
    calls = [{"ts_ns": 10 * n, "step": 1 + n // 2} for n in range(4)]
    assert ways(*calls) == [("to", 0), ("back", 1), ("to", 0), ("back", 1)]


def test_order_is_that_of_time_not_of_rows() -> None:
    assert ways({"ts_ns": 20}, {"ts_ns": 10}) == [("back", 1), ("to", 0)]


def test_counts_and_probabilities_carry_no_tokens() -> None:
    calls = [
        {"ts_ns": 0, "dtype": "int64", "size_bytes": 64},
        {"ts_ns": 10},
        {"ts_ns": 20, "dtype": "float32", "size_bytes": 62},
        {"ts_ns": 30},
    ]
    assert ways(*calls) == [("extra", None), ("to", 0), ("extra", None), ("back", 1)]


def test_a_rank_without_tokens_still_takes_part() -> None:
    out = {"ts_ns": 0, "size_bytes": 1000, "received_bytes": 0}
    assert ways(out, {"ts_ns": 10, "size_bytes": 0, "received_bytes": 1000}) == [("to", 0), ("back", 1)]


def test_libraries_say_which_way_and_their_notices_are_extra() -> None:
    calls = [
        {"ts_ns": 10 * n, "op": op, "size_bytes": None} for n, op in enumerate(("dispatch", "dispatch", "combine"))
    ]
    names = [
        "deep_ep::intranode::notify_dispatch<8>",
        "deep_ep::intranode::dispatch<8>",
        "deep_ep::intranode::combine<8>",
    ]
    kernels = made.kernels([{"ts_ns": 10 * n, "end": 10 * n + 5, "name": name} for n, name in enumerate(names)])
    assert ways(*calls, kernels=kernels) == [("extra", None), ("to", 0), ("back", 1)]


def test_unnamed_groups_count_only_in_a_job_with_experts_and_without_context_parallelism() -> None:
    calls = [{"ts_ns": 0, "dim": "other"}, {"ts_ns": 10, "dim": "other"}]
    assert ways(*calls) == [("to", 0), ("back", 1)]
    given = tables(*calls)
    given["moe_setup"] = moe_setup.SCHEMA.empty()
    assert exchanges.exchanges(**given).num_rows == 0
    assert ways(*calls, {"ts_ns": 20, "dim": "cp", "op": "all_gather"}) == []


def test_time_under_tensor_parallel_collectives() -> None:
    found = exchanges.exchanges(**tables({"ts_ns": 0}, {"ts_ns": 4, "dim": "tp", "op": "all_reduce", "dur_ns": 100}))
    assert found["tp_overlap_ns"].to_pylist() == [6]


def rounds(*work: int, wait: int, received: tuple[int, ...] = ()) -> list[Row]:
    """Rounds of two ranks whose experts compute for `work` ns; the shorter one waits."""
    calls, kernels = [], []
    for rank, length in enumerate(work):
        size = received[rank] if received else 1000
        out = {"rank": rank, "ts_ns": 0, "match": 0, "wait_ns": 0, "received_bytes": size}
        back = {"rank": rank, "ts_ns": 10 + length, "match": 1, "wait_ns": wait if length < max(work) else 0}
        calls += [out, back]
        kernels.append({"rank": rank, "ts_ns": 10, "end": 10 + length})
    given = tables(*calls)
    found = exchanges.exchanges(**given)
    table = expert_rounds.expert_rounds(found, made.kernels(kernels), given["matches"])
    rows: list[Row] = table.to_pylist()
    return rows


def test_a_round_ends_with_the_busiest_rank() -> None:
    fast, slow = rounds(100, 300, wait=200, received=(1000, 3000))
    assert (fast["expert_ns"], slow["expert_ns"]) == (100, 300)
    for row in (fast, slow):
        assert (row["busiest_rank"], row["mean_expert_ns"], row["balanced_gain_ns"]) == (1, 200, 100)
        assert row["received_imbalance_ratio"] == 1.5 and row["ranks_count"] == 2


def test_a_rank_that_is_slow_with_few_tokens_is_not_busy_for_its_tokens() -> None:
    assert {row["received_imbalance_ratio"] for row in rounds(100, 300, wait=200, received=(3000, 1000))} == {0.5}


def test_the_gain_is_no_more_than_what_was_waited() -> None:
    assert {row["balanced_gain_ns"] for row in rounds(100, 300, wait=30)} == {30}


def test_a_missing_rank_leaves_the_gain_unknown() -> None:
    (row,) = rounds(100, wait=0)
    assert row["expert_ns"] == 100 and row["balanced_gain_ns"] is None and row["busiest_rank"] is None


def calls_with(starts: list[int], lengths: list[int]) -> list[Row]:
    rows = [{"rank": 0, "op": "dispatch", "ts_ns": s, "dur_ns": d} for s, d in zip(starts, lengths, strict=True)]
    found: list[Row] = cold_calls.cold_calls(made.build(collectives.SCHEMA, rows)).to_pylist()
    return found


def bursts(cold: int, pause: int = 5_000_000) -> tuple[list[int], list[int]]:
    starts, lengths = [], []
    for burst in range(3):
        for call in range(5):
            starts.append(burst * (pause + 1_000_000) + call * 200_000)
            lengths.append(cold if call == 0 else 100_000)
    return starts, lengths


def test_first_calls_after_pauses_are_cold() -> None:
    (row,) = calls_with(*bursts(500_000))
    assert (row["bursts_count"], row["cold_count"], row["median_ns"], row["cold_ns"]) == (3, 3, 100_000, 500_000)
    assert row["extra_ns"] == 1_200_000 and row["pause_ns"] >= 5_000_000


@pytest.mark.parametrize(("cold", "pause"), [(290_000, 5_000_000), (500_000, 100_000)])
def test_a_little_slower_or_without_a_pause_is_not_cold(cold: int, pause: int) -> None:
    assert calls_with(*bursts(cold, pause)) == []


def test_one_slow_call_is_no_pattern() -> None:
    starts, lengths = bursts(100_000)
    lengths[5] = 900_000
    assert calls_with(starts, lengths) == []
