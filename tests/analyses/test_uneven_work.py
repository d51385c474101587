"""Work that differs in turn: from records of steps, and from micro-batches of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from diagnose.analyses.uneven_work import uneven_work
from diagnose.analyses.what_if import what_if
from tests.rules.build import MS, table

RANDOM = np.random.default_rng(5)


def series(work_ms: Any, tokens: Any = None, comm: bool = False) -> pa.Table:
    """Records of ranks x steps: a step lasts as long as its longest rank, and 20 ms of communication."""
    rows = []
    for step in range(work_ms.shape[1]):
        length = float(work_ms[:, step].max()) + 20
        for rank in range(work_ms.shape[0]):
            own = float(work_ms[rank, step])
            values = {"step_ms": length, **({"comm_ms": length - own} if comm else {"compute_ms": own})}
            values |= {} if tokens is None else {"tokens": float(tokens[rank, step])}
            rows += [{"rank": rank, "step": step, "metric": m, "value": v} for m, v in values.items()]
    return table("series", rows)


def one(found: pa.Table) -> dict[str, Any]:
    (row,) = found.to_pylist()
    return dict(row)


@pytest.mark.parametrize("comm", [False, True])
def test_turns_in_records(comm: bool) -> None:
    """The loss is the mean of the longest above the mean; tokens explain it; no rank has most of the blame."""
    tokens = RANDOM.integers(1000, 9000, (4, 60))
    work = 10 + tokens / 50
    row = one(uneven_work(series=series(work, tokens, comm)))

    assert row["waits_ns"] == pytest.approx((work.max(axis=0) - work.mean(axis=0)).mean() * MS, rel=1e-6)
    assert row["token_correlation_ratio"] == pytest.approx(1.0)
    assert row["blamed_ratio"] < 0.5 and row["ranks"] == [0, 1, 2, 3] and row["judged_count"] == 60


def test_one_slow_rank_takes_the_blame() -> None:
    work = np.full((4, 20), 100.0) + RANDOM.normal(0, 0.1, (4, 20))
    work[2] += 30
    row = one(uneven_work(series=series(work)))

    assert row["rank"] == 2 and row["blamed_ratio"] == pytest.approx(1.0) and row["variation_ratio"] < 0.01


def test_tokens_that_do_not_explain() -> None:
    """Equal tokens on all ranks of a step cannot be why they differ."""
    work = RANDOM.uniform(50, 150, (3, 20))
    assert one(uneven_work(series=series(work, np.tile(np.arange(20.0), (3, 1)))))["token_correlation_ratio"] is None
    assert abs(one(uneven_work(series=series(work, RANDOM.uniform(1, 2, (3, 20)))))["token_correlation_ratio"]) < 0.5


def test_too_little_to_tell() -> None:
    assert uneven_work(series=series(np.ones((4, 7)))).num_rows == 0
    assert uneven_work(series=series(np.ones((1, 20)))).num_rows == 0
    assert uneven_work().num_rows == 0


def micro_batches(backward_follows: bool) -> tuple[pa.Table, float]:
    """Two replicas of one stage, 30 steps of 4 micro-batches of different length; (work, expected gain)."""
    rows, lengths = [], np.zeros((2, 30))
    for step in range(30):
        for replica in range(2):
            size = RANDOM.uniform(1, 3, 4)
            other = size if backward_follows else RANDOM.uniform(1, 3, 4)
            at = 0.0
            for phase, factor, sizes in (("forward", 10, size), ("backward", 20, other)):
                for number, length in enumerate(sizes):
                    said = {"rank": replica, "replica": replica, "stage": 0, "step": step, "microbatch": number}
                    rows.append(
                        {**said, "phase": phase, "ts_ns": round(at * MS), "dur_ns": round(factor * length * MS)}
                    )
                    at += factor * length
            lengths[replica, step] = at
    for row in [r for r in rows if r["phase"] == "forward" and r["microbatch"] == 0]:
        end = lengths[:, row["step"]].max()
        own = lengths[row["replica"], row["step"]]
        said = {k: row[k] for k in ("rank", "replica", "stage", "step")}
        rows.append({**said, "phase": "gradient_sync", "ts_ns": round(own * MS), "dur_ns": round((end - own) * MS)})
    return table("stage_work", rows), float(lengths.max(axis=0).mean() - lengths.mean(axis=1).max())


@pytest.mark.parametrize("follows", [True, False])
def test_micro_batches(follows: bool) -> None:
    """Long sequences are long in both directions on the same worker; noise is not. The gain is the replay's."""
    work, gain_ms = micro_batches(follows)
    row = one(uneven_work(stage_work=work, what_if=what_if(work)))

    assert row["gain_ns"] == pytest.approx(gain_ms * MS, rel=1e-3)
    assert row["variation_ratio"] == pytest.approx(0.29, abs=0.05)
    assert (row["backward_correlation_ratio"] > 0.99) if follows else (abs(row["backward_correlation_ratio"]) < 0.5)
