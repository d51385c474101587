"""dispatch_bytes: what an exchange should carry, by the factors that settings tell, and what it did."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.analyses import dispatch_bytes, exchanges, moe_setup
from diagnose.schema import INGESTED
from tests.analyses.rows import build

Row = dict[str, Any]
TOKENS, TOPK, HIDDEN = 1000, 2, 512
PLAIN = TOKENS * TOPK * HIDDEN * 2
SETUP: Row = {"evidence": "test", "tokens_count": TOKENS, "topk": TOPK, "hidden": HIDDEN, "experts_count": 8}


def budget(sent: int | None, setup: Row | None = None, **more: Any) -> Row:
    """The row about exchanges to the experts of one rank in a group of four."""
    call = {"rank": 0, "step": 1, "place": 0, "way": "to", "phase": "forward", "dtype": "bfloat16", "group_size": 4,
            "sent_bytes": sent}  # fmt: skip
    calls = more.pop("calls", [call])
    given = moe_setup.SCHEMA.build({k: [v] for k, v in (SETUP | (setup or {})).items()})
    (row,) = dispatch_bytes.dispatch_bytes(
        build(exchanges.SCHEMA, [call | c for c in calls]), given, **more
    ).to_pylist()
    return row


def test_the_plain_product() -> None:
    row = budget(PLAIN)
    assert (row["assigned_bytes"], row["expected_bytes"], row["unexplained_ratio"]) == (PLAIN, PLAIN, 1.0)
    assert row["expected_leaving_bytes"] == PLAIN * 3 // 4 and row["missing"] == ""


@pytest.mark.parametrize(
    ("setup", "factor"),
    [
        ({"padded": True, "capacity_factor": 1.5}, 1.5),
        ({"ep_size": 2, "etp_size": 2}, 2.0),
        ({"dispatcher": "deepep"}, (4 * (1 - 15 / 28)) / 2),
        ({"dispatcher": "deepep", "groups_count": 2, "group_limit": 1}, (2 * (1 - 1 / 6)) / 2),
        ({"dispatch_element_width": 1.0}, 0.5),
    ],
)
def test_factors(setup: Row, factor: float) -> None:
    row = budget(round(PLAIN * factor), setup)
    assert row["unexplained_ratio"] == pytest.approx(1.0, abs=1e-5)


def test_missing_numbers_are_named_and_nothing_is_expected() -> None:
    row = budget(PLAIN, {"topk": None, "hidden": None})
    assert row["missing"] == "model.topk, model.hidden" and row["expected_bytes"] is None
    assert row["measured_bytes"] == PLAIN and row["unexplained_ratio"] is None


def test_padding_is_recognised_by_its_bytes_where_no_setting_tells() -> None:
    factor = {"capacity_factor": 1.5}
    assert budget(round(1.5 * PLAIN), factor)["padding_ratio"] == 1.5
    assert budget(round(1.4 * PLAIN), factor)["padding_ratio"] == 1.0
    assert budget(round(1.5 * PLAIN), factor | {"padded": False})["padding_ratio"] == 1.0


def test_wider_gradients_do_not_count() -> None:
    calls = [{"sent_bytes": PLAIN // 2, "dtype": "float8_e4m3fn", "phase": None}, {"sent_bytes": PLAIN, "phase": None}]
    assert budget(None, calls=calls)["unexplained_ratio"] == 1.0
    calls = [{"sent_bytes": PLAIN}, {"sent_bytes": 2 * PLAIN, "phase": "backward"}]
    assert budget(None, calls=calls)["measured_bytes"] == PLAIN


def test_tokens_of_records_are_shared_by_the_exchanges_of_a_record() -> None:
    records = [{"rank": 0, "step": 1, "layer": n, "tokens_entered_count": 4 * TOKENS} for n in (0, 1)]
    calls = [{"sent_bytes": PLAIN, "place": 2 * n} for n in range(8)]
    given = build(INGESTED["router_calls"], records)
    row = budget(None, {"tokens_count": None}, calls=calls, router_calls=given)
    assert (row["tokens_count"], row["unexplained_ratio"]) == (TOKENS, 1.0), "four micro-batches"
    row = budget(None, {"tokens_count": None}, calls=calls[:3], router_calls=given)
    assert row["tokens_count"] is None and "tokens" in row["missing"]


def test_an_unrecorded_size_is_unknown() -> None:
    row = budget(None)
    assert row["measured_bytes"] is None and row["measured_ratio"] is None and row["expected_bytes"] == PLAIN
