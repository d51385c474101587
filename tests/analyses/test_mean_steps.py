"""Means over a rank's analysed steps, rounded down; a recording without steps is one."""

from __future__ import annotations

from diagnose.analyses.mean_steps import mean_steps
from tests.rules.build import spans, step, tables


def test_means_per_rank() -> None:
    given = spans(
        step(1, rank=3, compute_ns=10, comm_ns=1),
        step(2, rank=3, compute_ns=13, comm_ns=0),
        step(None, rank=0, compute_ns=7),
    )
    found = mean_steps(tables(spans=given)["spans"]).to_pylist()

    assert [(r["rank"], r["spans_count"], r["step_ns"], r["compute_ns"], r["comm_ns"]) for r in found] == [
        (0, 1, 7, 7, 0),
        (3, 2, 12, 11, 0),
    ]
    assert [r["scope"] for r in found] == ["over the recording (no steps)", "per step"]


def test_no_spans_no_rows() -> None:
    assert mean_steps(tables()["spans"]).num_rows == 0
