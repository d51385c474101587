"""Who works longest in every step, told from step and communication time of all ranks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses.slow_ranks import _of_others, slow_ranks
from diagnose.schema import INGESTED

MS = 1e6
STEPS, RANKS = 40, 4


def records(own: np.ndarray, hidden: bool = False, **parts: np.ndarray) -> pa.Table:
    """Series of a job whose ranks work `own` ms (ranks x steps) and then wait for the longest."""
    step = np.broadcast_to(own.max(axis=0) + 5, own.shape)
    comm = step - own if not hidden else np.full(own.shape, 5.0)
    rows = [
        (rank, number, metric, value[rank, number] * MS)
        for metric, value in {"step_time_ns": step, "comm_time_ns": comm, **parts}.items()
        for rank in range(own.shape[0])
        for number in range(own.shape[1])
    ]
    rank, number, metric, value = zip(*rows, strict=True)
    return INGESTED["series"].build({"rank": rank, "step": np.array(number) + 1, "metric": metric, "value": value})


def even(slow: float = 0.0, rank: int = 2) -> np.ndarray:
    own = 50 + np.random.default_rng(0).normal(0, 0.5, (RANKS, STEPS))
    own[rank] += slow
    return own


def test_the_slow_rank_leads_and_the_others_wait() -> None:
    found = {r["rank"]: r for r in slow_ranks(records(even(20.0))).to_pylist()}

    assert found[2]["confirmed"] and found[2]["longest_ratio"] == 1.0
    assert abs(found[2]["lost_ns"] - 20 * MS) < MS
    assert not any(found[r]["confirmed"] and found[r]["lost_ns"] > MS for r in (0, 1, 3))


def test_equal_ranks_lose_nothing_to_speak_of() -> None:
    found = slow_ranks(records(even())).to_pylist()

    assert max(r["longest_ratio"] for r in found) < 0.6
    assert max(r["lost_ns"] for r in found) < MS


def test_a_rank_that_turned_slow_does_not_lead_in_every_third() -> None:
    own = even()
    own[1, STEPS // 2 :] += 20

    assert max(r["longest_ratio"] for r in slow_ranks(records(own)).to_pylist()) < 0.6


def test_waiting_that_the_records_do_not_see_confirms_nobody() -> None:
    found = slow_ranks(records(even(20.0), hidden=True)).to_pylist()

    assert not any(r["confirmed"] for r in found)


def test_the_part_that_makes_the_difference_is_named() -> None:
    loading = np.full((RANKS, STEPS), 1.0)
    loading[2] = 20.0

    (slow,) = [r for r in slow_ranks(records(even(20.0), input_time_ns=loading)).to_pylist() if r["rank"] == 2]

    assert (slow["part"], slow["part_ns"]) == ("input", 19 * MS)


def test_one_rank_or_no_communication_says_nothing() -> None:
    own = even(20.0)
    table = records(own)
    without = table.filter(pa.compute.not_equal(table["metric"].cast(pa.string()), "comm_time_ns"))

    assert slow_ranks(records(own[:1])).num_rows == 0
    assert slow_ranks(without).num_rows == 0


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=9))
def test_median_of_the_others_against_brute_force(values: list[int]) -> None:
    found = _of_others(np.array(values, np.float64))

    assert found.tolist() == [float(np.median(values[:n] + values[n + 1 :])) for n in range(len(values))]
