"""unhidden-gradients: gradient reduction mostly exposed, with the reason only where the recording shows it."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.schema import Tables
from tests.rules.build import MIB, MS, call, finding, quiet, spans, step, tables, turns_exactly_at

ONE_QUEUE = [{"key": "CUDA_DEVICE_MAX_CONNECTIONS", "value": "1", "source": "env.txt"}]


def job(*calls: dict[str, Any], settings: list[dict[str, Any]] | None = None, exposed_ns: int = 20 * MS) -> Tables:
    parts = {"compute_ns": 100 * MS - exposed_ns, "comm_ns": exposed_ns}
    return tables(spans=spans(step(**parts)), collectives=list(calls), settings=settings or [])


def reduction(dur_ns: int, hidden_ns: int = 0, op: str = "reduce_scatter", **more: Any) -> dict[str, Any]:
    return call(op, dur_ns, hidden_ns, **{"phase": "backward", "size_bytes": 32 * MIB, **more})


def fires() -> Tables:
    return job(*[reduction(5 * MS)] * 4)


def test_fires_without_inventing_a_cause() -> None:
    found = finding("unhidden-gradients", fires())
    assert (found.lost_ns, found.lost_ratio, found.confidence_ratio) == (20 * MS, 0.2, 0.5)
    assert found.summary.endswith("the recording does not show why")
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in found.summary


def test_quiet_when_hidden() -> None:
    quiet("unhidden-gradients", job(*[reduction(5 * MS, 4 * MS)] * 4, exposed_ns=4 * MS))


def test_thresholds() -> None:
    given = job(*[reduction(10 * MS, 4 * MS)] * 4, exposed_ns=24 * MS)
    turns_exactly_at("unhidden-gradients", given, min_exposed_ratio=0.6, min_share_ratio=0.24)


@pytest.mark.parametrize(("exposed_ms", "status"), [(5, quiet), (6, finding)])
def test_five_percent_of_the_step_is_not_enough(exposed_ms: int, status: Any) -> None:
    status("unhidden-gradients", job(reduction(exposed_ms * MS), exposed_ns=exposed_ms * MS))


def test_one_hardware_queue_is_the_suspect_for_sharded_data_parallelism() -> None:
    found = finding("unhidden-gradients", job(*[reduction(5 * MS)] * 4, settings=ONE_QUEUE))
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1 is set" in found.summary


def test_one_hardware_queue_is_no_suspect_where_something_overlaps() -> None:
    found = finding("unhidden-gradients", job(*[reduction(5 * MS, 1)] * 4, settings=ONE_QUEUE))
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in found.summary


def test_one_hardware_queue_is_right_with_tensor_parallelism() -> None:
    tensor = call("reduce_scatter", 10 * MS, dim="tp", group="tp0", size_bytes=32 * MIB)
    quiet("unhidden-gradients", job(tensor, settings=ONE_QUEUE))
    found = finding("unhidden-gradients", job(*[reduction(5 * MS)] * 4, tensor, settings=ONE_QUEUE))
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in found.summary


def test_one_call_for_all_gradients_on_a_healthy_network() -> None:
    huge = reduction(20 * MS, op="all_reduce", size_bytes=2048 * MIB, dim="other", busbw_bytes_per_s=250e9)
    found = finding("unhidden-gradients", job(huge))
    assert "one call for all gradients" in found.summary
    assert "no network fault" in found.summary


def test_a_rate_below_the_healthy_one_is_not_judged() -> None:
    exactly = reduction(20 * MS, busbw_bytes_per_s=200e9)
    assert "network" not in finding("unhidden-gradients", job(exactly)).summary


@pytest.mark.parametrize(
    ("blocked_by", "words"),
    [
        ("same_stream", "on the stream of the compute"),
        ("stream_wait", "compute waits"),
        ("launched_late", "launched late"),
    ],
)
def test_the_recorded_reason_is_named(blocked_by: str, words: str) -> None:
    assert words in finding("unhidden-gradients", job(*[reduction(5 * MS, blocked_by=blocked_by)] * 4)).summary


def test_scalars_forward_calls_and_tensor_like_groups_are_no_gradients() -> None:
    loss = reduction(20 * MS, op="all_reduce", size_bytes=16 * 1024)
    forward = reduction(20 * MS, op="all_reduce", phase="forward")
    unnamed = [reduction(10 * MS, op="all_reduce", dim="other", group="0", phase=p) for p in ("forward", "backward")]
    for calls in ([loss], [forward], unnamed):
        quiet("unhidden-gradients", job(*calls))


def test_a_late_rank_is_not_the_reductions_fault() -> None:
    waits, late = reduction(50 * MS), reduction(1 * MS, rank=1)
    given = tables(
        spans=spans(step(compute_ns=50 * MS, comm_ns=50 * MS), step(rank=1, compute_ns=99 * MS, comm_ns=1 * MS)),
        collectives=[waits, late],
    )
    quiet("unhidden-gradients", given)


def test_calls_outside_the_analysed_steps_do_not_count() -> None:
    quiet("unhidden-gradients", job(reduction(20 * MS, step=None), reduction(20 * MS, step=7)))


def test_overlapping_calls_cost_no_more_than_the_exposed_part() -> None:
    assert finding("unhidden-gradients", job(*[reduction(20 * MS)] * 3)).lost_ns == 20 * MS


def test_time_beside_another_reduction_is_not_taken_for_time_under_compute() -> None:
    first, beside = reduction(20 * MS, op="all_reduce"), {**reduction(20 * MS, op="all_reduce"), "exposed_ns": 0}
    assert (
        "100.0 % of the gradient all-reduce time is not under compute"
        in finding("unhidden-gradients", job(first, beside)).summary
    )
    waits = {**reduction(20 * MS, 1 * MS), "wait_ns": 15 * MS, "transfer_ns": 5 * MS, "exposed_ns": 4 * MS}
    assert "100.0 % of" in finding("unhidden-gradients", job(waits, *[reduction(3 * MS)] * 4)).summary
    hidden = reduction(20 * MS, 16 * MS)
    quiet("unhidden-gradients", job(hidden, {**reduction(20 * MS, 16 * MS), "exposed_ns": 0}, exposed_ns=4 * MS))


def test_no_more_is_lost_than_compute_could_hide() -> None:
    assert finding("unhidden-gradients", job(reduction(90 * MS), exposed_ns=90 * MS)).lost_ns == 10 * MS


def test_a_warning_above_a_tenth_of_the_step() -> None:
    assert finding("unhidden-gradients", job(reduction(10 * MS), exposed_ns=10 * MS)).severity == "info"
    assert finding("unhidden-gradients", job(reduction(10 * MS + 1), exposed_ns=10 * MS + 1)).severity == "warning"


def test_what_is_only_taken_for_a_gradient_is_said_and_doubted() -> None:
    known = finding("unhidden-gradients", fires())
    taken = finding("unhidden-gradients", job(*[reduction(5 * MS, dim="other", phase=None)] * 4))
    assert "taken for gradients" not in known.summary
    assert "taken for gradients" in taken.summary
    assert taken.confidence_ratio < known.confidence_ratio
