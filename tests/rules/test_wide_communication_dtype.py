"""wide-communication-dtype: float32 gradients on the wire of a 16-bit model."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at

BF16 = [
    {"rank": 0, "step": 1, "dtype": "bfloat16", "dur_ns": 50 * MS},
    {"rank": 0, "step": 1, "dtype": "float32", "dur_ns": MS},
]


def job(
    exposed_ns: int = 20 * MS, dtype: str | None = "float32", gemms: list[dict[str, Any]] | None = None, **more: Any
) -> Tables:
    reduction = call("all_reduce", exposed_ns, **{"dtype": dtype, "size_bytes": 64 * MIB, **more})
    parts = spans(step(compute_ns=100 * MS - exposed_ns, comm_ns=exposed_ns))
    return tables(spans=parts, collectives=[reduction], gemms=BF16 if gemms is None else gemms)


def fires() -> Tables:
    return job()


def test_at_best_half_of_the_exposed_time_is_gained() -> None:
    found = finding("wide-communication-dtype", fires())
    assert (found.lost_ns, found.severity, found.confidence_ratio) == (10 * MS, "warning", 0.5)
    assert found.evidence["compute_dtype"] == "bfloat16"
    assert "numerics" in found.fix


def test_info_up_to_a_twentieth_of_the_step() -> None:
    assert finding("wide-communication-dtype", job(10 * MS)).severity == "info"
    assert finding("wide-communication-dtype", job(10 * MS + 2)).severity == "warning"


def test_quiet_exactly_at_a_hundredth() -> None:
    quiet("wide-communication-dtype", job(2 * MS))
    finding("wide-communication-dtype", job(2 * MS + 2))


def test_thresholds() -> None:
    turns_exactly_at("wide-communication-dtype", fires(), min_size_bytes=64 * MIB, min_share_ratio=0.1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int64"])
def test_quiet_when_the_reduction_is_narrow(dtype: str) -> None:
    quiet("wide-communication-dtype", job(dtype=dtype))


def test_quiet_when_the_model_computes_in_float32() -> None:
    quiet("wide-communication-dtype", job(gemms=[{"rank": 0, "step": 1, "dtype": "float32", "dur_ns": MS}]))


def test_gathered_parameters_tell_the_compute_dtype_too() -> None:
    given = job(gemms=[])
    gather = call("all_gather", MS, MS, dtype="bfloat16", size_bytes=MIB)
    both = [{**call("all_reduce", 20 * MS), "dtype": "float32", "size_bytes": 64 * MIB}, gather]
    given = tables(spans=spans(step(compute_ns=80 * MS, comm_ns=20 * MS)), collectives=both)
    assert finding("wide-communication-dtype", given).evidence["compute_dtype"] == "bfloat16"


def test_no_answer_where_the_compute_dtype_is_unknown() -> None:
    assert outcome("wide-communication-dtype", job(gemms=[])).status == "skipped"
    assert outcome("wide-communication-dtype", job(dtype=None)).status == "skipped"
