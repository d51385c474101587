"""router_load and experts: what records of routers mean, dropped or not, before or after the cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.analyses import experts, moe_setup, router_doubts, router_load
from diagnose.schema import INGESTED
from tests.analyses.rows import build

Row = dict[str, Any]


def tables(*calls: Row, setup: Row | None = None) -> dict[str, Any]:
    """Router tables from calls with `counts` (and `kept` or `routed`)."""
    records, rows = [], []
    for number, call in enumerate(calls):
        records.append({"file": 0, "record": number, "step": 1, "layer": 0} | {
            k: v for k, v in call.items() if k not in ("counts", "kept", "routed")})  # fmt: skip
        names = {"counts": "tokens_count", "kept": "kept_count", "routed": "routed_count"}
        given_ = {names[k]: call[k] for k in names if k in call}
        width = len(next(iter(given_.values())))
        rows += [
            {"file": 0, "record": number, "expert": e} | {k: v[e] for k, v in given_.items()} for e in range(width)
        ]
    made = moe_setup.SCHEMA.build({k: [v] for k, v in setup.items()}) if setup else moe_setup.SCHEMA.empty()
    return {"router": build("router", rows), "router_calls": build("router_calls", records), "moe_setup": made}


def load(*calls: Row, setup: Row | None = None) -> list[Row]:
    found: list[Row] = router_load.router_load(**tables(*calls, setup=setup)).to_pylist()
    return found


TOKENS = {"tokens_entered_count": 50, "topk": 2}


def test_counts_that_sum_to_the_assignments_are_from_before_the_drop() -> None:
    (row,) = load({"counts": [70, 20, 10], "capacity_count": 40, **TOKENS})
    assert (row["counted"], row["dropped_count"], row["drop_ratio"]) == ("routed", 30, 0.3)


def test_counts_within_the_capacity_that_sum_to_less_are_what_was_kept() -> None:
    (row,) = load({"counts": [40, 20, 10], "capacity_count": 40, **TOKENS})
    assert (row["counted"], row["dropped_count"], row["tokens_count"]) == ("kept", 30, 70)


def test_a_full_load_within_the_capacity_drops_nothing_and_that_is_known() -> None:
    (row,) = load({"counts": [40, 40, 20], "capacity_count": 40, **TOKENS})
    assert (row["counted"], row["dropped_count"], row["dropless"]) == ("routed", 0, False)


def test_without_tokens_or_capacity_drops_are_unknown() -> None:
    for call in (
        {"counts": [40, 20, 10]},
        {"counts": [40, 20, 10], "capacity_count": 40},
        {"counts": [1, 2], **TOKENS},
    ):
        (row,) = load(call)
        assert row["dropped_count"] is None and row["drop_ratio"] is None and row["counted"] == "unknown"


def test_over_the_capacity_is_before_the_drop_even_without_tokens() -> None:
    (row,) = load({"counts": [70, 20, 10], "capacity_count": 40})
    assert (row["counted"], row["dropped_count"], row["drop_ratio"]) == ("routed", 30, 0.3)


def test_dropless_is_null_not_zero() -> None:
    (row,) = load({"counts": [70, 20, 10], "dropless": True, **TOKENS})
    assert row["dropless"] is True and row["dropped_count"] is None and row["capacity_count"] is None
    (row,) = load({"counts": [70, 20, 10], **TOKENS}, setup={"dropless": True})
    assert row["dropless"] is True and row["dropped_count"] is None


def test_a_record_with_a_capacity_overrules_dropless_settings() -> None:
    (row,) = load({"counts": [70, 20, 10], "capacity_count": 40, **TOKENS}, setup={"dropless": True})
    assert row["dropped_count"] == 30


def test_what_the_record_says_of_drops_counts_where_counts_do_not_tell() -> None:
    (row,) = load({"counts": [70, 20, 10], "dropped_count": 12, **TOKENS})
    assert (row["dropped_count"], row["inconsistent_count"]) == (12, 0)


def test_a_log_that_says_zero_after_the_cut_is_not_believed() -> None:
    made = tables({"counts": [40, 20, 10], "capacity_count": 40, "dropped_count": 0, **TOKENS})
    (row,) = router_load.router_load(**made).to_pylist()
    assert (row["dropped_count"], row["inconsistent_count"]) == (30, 1)
    doubts = router_doubts.router_doubts(router_load.router_load(**made)).to_pylist()
    assert [(d["problem"], d["count"]) for d in doubts] == [("inconsistent_counts", 1)]


def test_twice_the_assignments_are_recomputation() -> None:
    (row,) = load({"counts": [140, 40, 20], **TOKENS})
    assert (row["tokens_count"], row["doubled_count"]) == (100, 1)


def test_both_counts_tell_drops_without_a_capacity() -> None:
    made = tables({"routed": [70, 30], "kept": [50, 30]})
    (row,) = router_load.router_load(**made).to_pylist()
    assert (row["dropped_count"], row["tokens_count"]) == (20, 100)
    rows = experts.experts(**made).to_pylist()
    assert [(r["kept_count"], r["dropped_count"]) for r in rows] == [(50, 20), (30, 0)]


def test_drops_are_per_rank_and_then_summed() -> None:
    calls = [{"counts": c, "rank": r, "capacity_count": 50, **TOKENS} for r, c in enumerate(([100, 0], [0, 100]))]
    (row,) = load(*calls)
    assert row["dropped_count"] == 100, "the sum over ranks would fit, but every rank drops half"
    assert (row["ranks_count"], row["records_count"], row["imbalance_ratio"]) == (2, 2, 1.0)


def test_records_of_all_ranks_together_count_once() -> None:
    calls = [{"counts": [3, 1], "rank": r, "scope": "all"} for r in (0, 1)]
    assert [row["tokens_count"] for row in load(*calls)] == [4]


def test_evaluation_and_recomputation_are_left_out() -> None:
    calls = [{"counts": [3, 1], "phase": phase} for phase in ("forward", "recompute", "eval", None)]
    assert [row["tokens_count"] for row in load(*calls)] == [8]


def test_expert_parallel_ranks_hold_experts_in_blocks() -> None:
    (row,) = load({"counts": [6, 4, 2, 0, 0, 0, 0, 0], "ep_size": 4})
    assert (row["busiest_ep_rank"], row["ep_imbalance_ratio"]) == (0, pytest.approx(10 / 3))
    (row,) = load({"counts": [6, 4, 2], "ep_size": 2})
    assert row["ep_imbalance_ratio"] is None, "three experts do not fill two ranks evenly"


def test_experts_over_the_run() -> None:
    calls = [{"counts": [10, 10] if step < 6 else [20, 0], "step": step} for step in range(9)]
    rows = experts.experts(**tables(*calls)).to_pylist()
    assert [r["early_load_ratio"] for r in rows] == [1.0, 1.0]
    assert [r["late_load_ratio"] for r in rows] == [2.0, 0.0]
    assert {r["late_expected_count"] for r in rows} == {30} and {r["steps_count"] for r in rows} == {9}


def test_an_expert_nobody_names_is_still_there() -> None:
    rows = experts.experts(**tables({"counts": [5, 5], "experts_count": 4})).to_pylist()
    assert [r["load_ratio"] for r in rows] == [2.0, 2.0, 0.0, 0.0]


@given(st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), min_size=1, max_size=5))
def test_sums_and_drops_by_brute_force(counts: list[list[int]]) -> None:
    calls = [
        {"counts": c, "rank": r, "capacity_count": 20, "tokens_entered_count": sum(c), "topk": 1}
        for r, c in enumerate(counts)
    ]
    (row,) = load(*calls)
    summed = np.sum(counts, axis=0)
    assert row["dropped_count"] == sum(max(0, n - 20) for c in counts for n in c)
    assert row["tokens_count"] == summed.sum() and row["busiest_count"] == summed.max()
    assert row["unused_count"] == (summed == 0).sum()


def test_setup_from_settings() -> None:
    def setup(**settings: str) -> Row:
        rows = [{"key": k.replace("__", "."), "value": v, "source": "train.log"} for k, v in settings.items()]
        made = build("settings", rows)
        (row,) = moe_setup.moe_setup(made).to_pylist()
        return row

    given_ = setup(
        model__experts="64", moe__capacity_factor="None", moe__force_balance="True", moe__expert_bias="False"
    )
    assert (given_["dropless"], given_["forced"], given_["expert_bias"]) == (True, True, False)
    assert setup(model__experts="64", moe__capacity_factor="1.5")["capacity_factor"] == 1.5
    assert setup(model__experts="64")["dropless"] is None, "nothing says whether there is a capacity"
    tokens = setup(model__experts="8", train__micro_batch="2", model__seq_len="4096", layout__tp="4")
    assert tokens["tokens_count"] == 2048, "expert parallelism with tensor parallelism splits the sequence"
    assert moe_setup.moe_setup(build("settings", [{"key": "model.experts", "value": "1"}])).num_rows == 0
    assert moe_setup.moe_setup(INGESTED["settings"].empty()).num_rows == 0
