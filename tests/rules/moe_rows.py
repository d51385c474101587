"""Rows of a job with experts: a healthy one, and what rules about experts fire on."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, Row, spans, step, tables

SETUP: Row = {
    "evidence": "settings name 8 experts", "experts_count": 8, "topk": 2, "ep_size": 4, "etp_size": 1, "hidden": 4096,
    "tokens_count": 8192, "capacity_factor": 1.25, "dropless": False, "aux_loss_coeff": 1e-2, "balancing": "aux_loss",
}  # fmt: skip
LOAD: Row = {
    "segment": 0, "step": 1, "layer": 1, "records_count": 1, "ranks_count": 1, "experts_count": 8, "topk": 2,
    "assigned_count": 16_000, "tokens_count": 16_000, "counted": "routed", "dropless": False, "capacity_count": 2_500,
    "dropped_count": 16, "drop_ratio": 0.001, "imbalance_ratio": 1.2, "chance_imbalance_ratio": 1.0,
}  # fmt: skip
BALANCE: Row = {
    "source": "records", "steps_count": 30, "layers_count": 2, "imbalance_ratio": 1.2, "ep_imbalance_ratio": 1.1,
    "chance_imbalance_ratio": 1.0, "worst_layer": 1, "worst_ratio": 1.3,
}  # fmt: skip
TRACE: Row = {
    "source": "trace", "steps_count": 3, "layers_count": 8, "ep_imbalance_ratio": 1.05, "busiest_rank": 2,
    "expert_ns": 30 * MS, "busiest_expert_ns": 31 * MS, "wait_ns": MS, "transfer_ns": 4 * MS, "gain_ns": MS,
    "step_ns": 100 * MS, "gain_ratio": 0.01,
}  # fmt: skip
BYTES: Row = {
    "way": "to", "calls_count": 32, "ranks_count": 4, "group_size": 4, "measured_bytes": 100 * MIB,
    "assigned_bytes": 100 * MIB, "tokens_count": 6400, "topk": 2, "hidden": 4096, "element_width": 2.0,
    "recorded_width": 2.0, "padding_ratio": 1.0, "kept_ratio": 1.0, "copies_ratio": 1.0, "sent_once_ratio": 1.0,
    "expected_bytes": 100 * MIB, "measured_ratio": 1.0, "unexplained_ratio": 1.0, "missing": "",
}  # fmt: skip
EXCHANGE: Row = {
    "rank": 0, "step": 1, "way": "to", "phase": "forward", "dur_ns": 2 * MS, "wait_ns": 0, "exposed_ns": 2 * MS,
    "exposed_wait_ns": 0, "sent_bytes": 100 * MIB, "received_bytes": 100 * MIB, "tp_overlap_ns": 0,
}  # fmt: skip
JOB_SPANS = spans(step(compute_ns=70 * MS, comm_ns=30 * MS))


def expert(number: int, ratio: float = 1.0, layer: int = 1, **more: Any) -> Row:
    """One row of `experts`, with a thousand expected tokens in the last third."""
    return {"layer": layer, "expert": number, "late_load_ratio": ratio, "late_expected_count": 1000, **more}


def healthy() -> dict[str, list[Row]]:
    """A job whose experts are nearly even and whose bytes are what they should be."""
    return {
        "moe_setup": [SETUP],
        "router_load": [LOAD, {**LOAD, "layer": 2}],
        "expert_balance": [BALANCE, TRACE],
        "experts": [expert(n, 0.9 + 0.02 * n) for n in range(8)],
        "dispatch_bytes": [BYTES, {**BYTES, "way": "back"}],
        "exchanges": [{**EXCHANGE, "exposed_ns": MS // 4}, {**EXCHANGE, "way": "back", "exposed_ns": MS // 4}],
    }


def job(**rows: list[Row]) -> Tables:
    """Tables of that job with some rows replaced."""
    return tables(**{"spans": JOB_SPANS, **healthy(), **rows})
