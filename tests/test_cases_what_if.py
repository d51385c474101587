"""Stragglers from end to end: the published pipeline job and copies of it, injected faults, a public case; each finding
names the right cause, and says what the job would gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from fixtures.simulate.files import write as traces
from fixtures.simulate.job import Faults, Job, Layout, Model, Schedule
from fixtures.simulate.pipeline_operations import Replicas, operations, write
from fixtures.simulate.pipelines import MS, Pipeline
from tests import ask
from tests.test_cases_drift import Variant, each, told

ST = "bytedance-straggler/data"
LINKS = {(a, b): 200_000 for a in range(4) for b in (a - 1, a + 1)}
SMALL = Model(layers=2, hidden=2048, heads=16, ffn=8192, seq_len=1024)
EVEN = Replicas(Pipeline(stages=4, microbatches=48, link_ns=LINKS), count=3)


def _same(table: pa.Table) -> pa.Table:
    return table


def _renamed(table: pa.Table) -> pa.Table:
    ranks = pa.array([73 - 9 * rank for rank in table["rank"].to_pylist()], pa.int16())
    return table.set_column(table.column_names.index("rank"), "rank", ranks)


def _replicas_swapped(table: pa.Table) -> pa.Table:
    other = pa.array([1 - replica for replica in table["dp_rank"].to_pylist()], pa.int8())
    return table.set_column(table.column_names.index("dp_rank"), "dp_rank", other)


def _shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array([(i * 7919 + 13) % table.num_rows for i in range(table.num_rows)]))


@pytest.mark.parametrize("change", [_same, _renamed, _replicas_swapped, _shuffled], ids=lambda f: f.__name__)
def test_the_published_straggler(corpus: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """An uneven split, the last stage too long: not a bad worker."""
    given = change(pyarrow.parquet.read_table(corpus / ST / "trace-ST.parquet"))
    pyarrow.parquet.write_table(given, tmp_path / "trace.parquet")
    diagnosis = ask.run(tmp_path / "trace.parquet", corpus / ST / "meta-ST.yaml")

    first = diagnosis.findings[0]
    assert first.rule == "stage-imbalance" and first.evidence["stage"] == 3
    ratios = {"slowdown_ratio": 1.1787, "m_s_ratio": 1.2194, "m_w_ratio": 0.0314}
    assert {name: first.evidence[name] for name in ratios} == pytest.approx(ratios, rel=1e-3)
    times = {"simulated_ns": 2.1727e9, "ideal_ns": 1.8433e9, "measured_ns": 2.2144e9}
    assert {name: first.evidence[name] for name in times} == pytest.approx(times, rel=1e-3)
    assert not {"late-rank", "slow-boundary", "uneven-batch"} & set(ask.found(diagnosis))


def injected(folder: Path, job: Replicas) -> Any:
    """(diagnosis, what the injected fault costs a step)."""
    write(job, folder)
    return ask.run(folder), operations(job)[1] - operations(replace(EVEN, count=job.count))[1]


@pytest.mark.parametrize("heavy", [0, 1, 3])
def test_an_uneven_split(tmp_path: Path, heavy: int) -> None:
    slow = {stage: 1.3 if stage == heavy else 0.9 for stage in range(4)}
    diagnosis, loss = injected(tmp_path, replace(EVEN, pipeline=replace(EVEN.pipeline, slow_stages=slow)))

    found = diagnosis.findings[0]
    assert found.rule == "stage-imbalance" and found.evidence["stage"] == heavy
    assert found.lost_ns == pytest.approx(loss, rel=0.02)
    assert "late-rank" not in ask.found(diagnosis)


@pytest.mark.parametrize("workers", [{(0, 0): 1.4}, {(2, 3): 1.4}, {(1, 2): 1.4, (2, 1): 1.4}])
def test_slow_workers(tmp_path: Path, workers: dict[tuple[int, int], float]) -> None:
    ranks = tuple(range(40, 52))
    diagnosis, loss = injected(tmp_path, replace(EVEN, slow_workers=workers, ranks=ranks))

    found = diagnosis.findings[0]
    assert found.rule == "late-rank" and found.ranks == tuple(sorted(40 + r + 3 * s for r, s in workers))
    assert (found.lost_ns, found.lost_kind) == (pytest.approx(loss, rel=0.02), "simulated")
    assert "stage-imbalance" not in ask.found(diagnosis)


@pytest.mark.parametrize("boundary", [0, 1, 2])
def test_a_slow_link(tmp_path: Path, boundary: int) -> None:
    ends = (boundary, boundary + 1)
    slow = {**LINKS, ends: 15 * MS, ends[::-1]: 15 * MS}
    diagnosis, loss = injected(tmp_path, replace(EVEN, pipeline=replace(EVEN.pipeline, link_ns=slow)))

    found = diagnosis.findings[0]
    assert found.rule == "slow-boundary" and found.evidence["stage"] == boundary
    assert found.lost_ns == pytest.approx(loss, rel=0.02)
    assert not {"late-rank", "stage-imbalance"} & set(ask.found(diagnosis))


def test_an_even_job_has_nothing_to_fix(tmp_path: Path) -> None:
    """48 micro-batches on four stages: the bubble is small, and nobody is late."""
    diagnosis, _ = injected(tmp_path, EVEN)

    assert diagnosis.findings == []


@each
def test_d12_another_rank_has_the_long_sequences(tmp_path: Path, variant: Variant) -> None:
    """Compute follows tokens; the loss is the mean of the longest above the mean; no node is bad."""
    diagnosis = told("D12", tmp_path, variant)
    batch = ask.finding(diagnosis, "uneven-batch")

    assert diagnosis.findings[0] == batch
    assert batch.lost_ns == variant.ns(84.043125)
    assert batch.evidence["token_correlation_ratio"] > 0.98 and batch.evidence["blamed_ratio"] < 0.5
    assert ask.found(diagnosis) == ["uneven-batch", "moving-straggler"]


def test_blame_goes_through_both_dimensions_to_where_it_starts(tmp_path: Path) -> None:
    """Tensor and data parallel ranks wait for each other; the slow one alone is blamed, for what the job loses."""
    even = Job("plane", "2 x 2", model=SMALL, layout=Layout(dp=2, tp=2), schedule=Schedule(steps=3, jitter_ratio=0.0))
    slow = replace(even, faults=Faults(slow_rank=1, slow_ratio=1.4))
    lengths = []
    for name, job in (("even", even), ("slow", slow)):
        (tmp_path / name).mkdir()
        traces(job, tmp_path / name)
        diagnosis = ask.run(tmp_path / name)
        lengths.append(ask.rows(diagnosis, "rank_what_if")[0]["step_ns"])
        assert ("late-rank" in ask.found(diagnosis)) == (name == "slow")
    late = diagnosis.findings[0]

    assert late.rule == "late-rank" and late.ranks == (1,) and late.evidence["cause"] == "compute"
    assert (late.lost_ns, late.lost_kind) == (pytest.approx(lengths[1] - lengths[0], rel=0.02), "simulated")
