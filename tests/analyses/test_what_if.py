"""Replays of pipeline jobs: the published job to the digit, injected faults to the millisecond, doubt where due."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnose import pipeline
from diagnose.analyses.stage_work import stage_work
from diagnose.analyses.what_if import what_if
from fixtures.simulate.pipeline_operations import Replicas, operations, write
from fixtures.simulate.pipelines import MS, Pipeline
from tests.rules.build import table

SHAPE = Pipeline(stages=4, microbatches=12, link_ns={(a, b): 200_000 for a in range(4) for b in (a - 1, a + 1)})
EVEN = Replicas(SHAPE, count=3)


def rows(folder: Path, job: Replicas) -> list[dict[str, Any]]:
    """Rows of `what_if` of a simulated job."""
    write(job, folder)
    tables = pipeline.derive(pipeline.read([str(folder)], 1), wanted={"what_if"})
    return list(tables["what_if"].to_pylist())


def one(found: list[dict[str, Any]], fixed: str, **where: object) -> dict[str, Any]:
    """The only row of a fix."""
    (row,) = [r for r in found if r["fixed"] == fixed and all(r[k] == v for k, v in where.items())]
    return row


def loss_ns(job: Replicas, without: Replicas = EVEN) -> int:
    """What an injected fault costs a step, by the simulator."""
    return operations(job)[1] - operations(without)[1]


def test_the_published_job(corpus: Path) -> None:
    """ByteDance ST: S, M_S, M_W, simulated, ideal and measured step, and S of every kind, stage and replica."""
    path = corpus / "bytedance-straggler/data/trace-ST.parquet"
    found = pipeline.derive(pipeline.read([str(path)], 1), wanted={"what_if"})["what_if"].to_pylist()

    nothing, everything = found[:2]
    assert nothing["step_ns"] == pytest.approx(2.172696813e9, rel=1e-6)
    assert nothing["measured_ns"] == pytest.approx(2.2144e9, rel=1e-4)
    assert everything["step_ns"] == pytest.approx(1.843295824e9, rel=1e-6)
    assert everything["slowdown_ratio"] == pytest.approx(1.178702184, rel=1e-6)
    assert one(found, "stage", stage=3)["explained_ratio"] == pytest.approx(1.219356379, rel=1e-5)
    assert one(found, "slowest_workers")["explained_ratio"] == pytest.approx(0.031404269, rel=1e-4)
    stages = [one(found, "stage", stage=s)["slowdown_ratio"] for s in range(4)]
    assert stages == pytest.approx([0.9980450635, 0.9830562531, 0.9824931310, 1.2322559543], rel=1e-6)
    replicas = [one(found, "replica", replica=r)["slowdown_ratio"] for r in range(2)]
    assert replicas == pytest.approx([1.1730828198, 1.1778704237], rel=1e-6)
    kinds = {"forward": 1.0874989663, "backward": 1.0741564724, "embedding_sync": 1.0095504024, "gc": 1.0,
             "exchange_forward": 0.9998586213, "exchange_backward": 0.9999929942}  # fmt: skip
    assert {k: one(found, "phase", phase=k)["slowdown_ratio"] for k in kinds} == pytest.approx(kinds, rel=1e-6)


def test_an_even_job_gains_nothing(tmp_path: Path) -> None:
    """The replay is the recording; no stage, worker or link stands out."""
    found = rows(tmp_path, EVEN)

    assert found[0]["error_ratio"] < 1e-6 and found[1]["slowdown_ratio"] == pytest.approx(1.0, abs=1e-3)
    assert one(found, "stage_balance")["gain_ns"] == pytest.approx(0, abs=1_000)
    assert not [r for r in found if r["fixed"] in ("link", "worker") and r["gain_ns"]]


@pytest.mark.parametrize("heavy", [0, 1, 3])
def test_an_uneven_split(tmp_path: Path, heavy: int) -> None:
    """Work moved from three stages to one: the stage is named, and an even split wins what the move cost."""
    slow = {stage: 1.3 if stage == heavy else 0.9 for stage in range(4)}
    job = replace(EVEN, pipeline=replace(SHAPE, slow_stages=slow))
    found = rows(tmp_path, job)

    assert one(found, "stage_balance")["gain_ns"] == pytest.approx(loss_ns(job), rel=0.02)
    explained = [one(found, "stage", stage=s)["explained_ratio"] for s in range(4)]
    assert int(np.argmax(explained)) == heavy and explained[heavy] >= 0.5
    assert one(found, "slowest_workers")["explained_ratio"] < 0.5


@pytest.mark.parametrize("worker", [(0, 0), (2, 1), (1, 3)])
def test_a_slow_worker(tmp_path: Path, worker: tuple[int, int]) -> None:
    """One worker of twelve: M_W is near 1, its rank is named, and being like its stage wins what it cost."""
    ranks = tuple(range(100, 112))
    job = replace(EVEN, slow_workers={worker: 1.4}, ranks=ranks)
    found = rows(tmp_path, job)

    slowest = one(found, "slowest_workers")
    assert slowest["ranks"] == [100 + worker[0] + 3 * worker[1]] and slowest["explained_ratio"] > 0.9
    assert one(found, "worker", rank=slowest["ranks"][0])["gain_ns"] == pytest.approx(loss_ns(job), rel=0.02)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_slow_link(tmp_path: Path, recorded: bool) -> None:
    """The boundary after stage 1: named, and being like the others wins what it cost; also from lags alone."""
    links = {**SHAPE.link_ns, (1, 2): 15 * MS, (2, 1): 15 * MS}
    job = replace(EVEN, pipeline=replace(SHAPE, link_ns=links), count=1)
    write(job, tmp_path)
    given = pipeline.read([str(tmp_path)], 1)["microbatches"]
    if not recorded:
        given = given.filter(pc.invert(pc.match_substring(given["phase"].cast(pa.string()), "_")))
    found = what_if(stage_work(given)).to_pylist()

    (link,) = [r for r in found if r["fixed"] == "link" and r["gain_ns"]]
    assert link["stage"] == 1 and len([r for r in found if r["fixed"] == "link"]) == 3
    assert link["gain_ns"] == pytest.approx(loss_ns(job, replace(EVEN, count=1)), rel=0.02)


@pytest.mark.parametrize("idle_calls", [False, True])
@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 3)])
def test_interleaved_stages(tmp_path: Path, stages: int, chunks: int, idle_calls: bool) -> None:
    """Results go round from the last stage to the first; calls at the ends of the model move nothing."""
    links = {(a, b % stages): 300_000 for a in range(stages) for b in (a - 1, a + 1)}
    even = Replicas(Pipeline("interleaved", stages, 2 * stages, chunks, link_ns=links), idle_calls=idle_calls)
    job = replace(even, slow_workers={(1, 1): 1.5})
    found = rows(tmp_path, job)

    assert found[0]["error_ratio"] < 1e-6
    gain = one(found, "worker", stage=1, replica=1)["gain_ns"]
    assert gain == pytest.approx(loss_ns(job, even), rel=0.02)


def test_a_replay_off_the_recording_is_no_answer() -> None:
    """Something outside the known dependencies takes half of the step: the error is reported, nothing else."""
    gap = [{"phase": "forward", "ts_ns": 0, "dur_ns": MS}, {"phase": "backward", "ts_ns": 2 * MS, "dur_ns": MS}]
    made = table("stage_work", [{"rank": 0, "step": 1, "stage": 0, "replica": 0, **row} for row in gap])
    (row,) = what_if(made).to_pylist()

    assert row["error_ratio"] == pytest.approx(1 / 3) and "33.3%" in row["reason"] and row["gain_ns"] is None


def test_receives_that_do_not_fit_are_no_answer(tmp_path: Path) -> None:
    """Five receives for twelve computations: which belongs to which cannot be told."""
    write(EVEN, tmp_path)
    given = pipeline.read([str(tmp_path)], 1)["microbatches"]
    late = pc.and_(pc.equal(given["stage"], 2), pc.greater(given["seq"], 4))
    lost = pc.and_(late, pc.equal(given["phase"].cast(pa.string()), "recv_forward"))
    (row,) = what_if(stage_work(given.filter(pc.invert(lost)))).to_pylist()

    assert "5 forward receives for 12" in row["reason"]


def test_nothing_from_nothing() -> None:
    assert what_if(stage_work(table("microbatches", []))).num_rows == 0
