"""Bubbles of simulated pipelines against their schedules' laws; parts of the step against what was put in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from diagnose import ingest
from diagnose.analyses.bubbles import bubbles
from diagnose.analyses.pipeline import pipeline
from diagnose.analyses.stage_work import stage_work
from diagnose.analyses.stages import stages
from fixtures.simulate import pipelines
from fixtures.simulate.pipelines import MS, Pipeline
from fixtures.simulate.schedules import SCHEDULES, legal
from tests import ask

PARTS = ("work_ns", "schedule_ns", "imbalance_ns", "worker_ns", "variation_ns", "transfer_ns")
EVERY = [
    Pipeline(schedule, stages, microbatches, chunks)
    for schedule in SCHEDULES
    for chunks in ((2, 4) if schedule == "interleaved" else (1,))
    for stages in (2, 4, 8, 16)
    for microbatches in (stages, 2 * stages, 3 * stages, 8 * stages)
    if legal(schedule, stages, microbatches, chunks)
]


def work_of(job: Pipeline, folder: Path, steps: int = 1) -> Any:
    parts = [ingest.read(ingest.Source(str(path))) for path in pipelines.timelines(job, folder, steps)]
    return stage_work(ingest.merge(parts)["microbatches"])


def name(job: Pipeline) -> str:
    return f"{job.schedule}-{job.chunks}-p{job.stages}-m{job.microbatches}"


@pytest.mark.parametrize("job", EVERY, ids=name)
def test_every_schedule_is_recognised_and_idles_by_its_law(job: Pipeline, tmp_path: Path) -> None:
    (row,) = bubbles(work_of(job, tmp_path)).to_pylist()

    assert row["schedule"] == job.schedule
    assert (row["stages_count"], row["microbatches_count"]) == (job.stages, job.microbatches)
    assert row["bubble_ns"] == pytest.approx(row["law_ns"], abs=0.001 * row["dur_ns"]), "0.1 points of the step"
    assert sum(row[part] or 0 for part in PARTS) == row["dur_ns"]
    for nothing in ("imbalance_ns", "variation_ns", "transfer_ns"):
        assert abs(row[nothing]) <= 20, "rounding to whole ns"


@pytest.mark.parametrize(
    ("job", "law_ns"),
    [
        (Pipeline("gpipe", 4, 8, forward_ns=30 * MS, input_ns=35 * MS, weight_ns=25 * MS), 3 * 90 * MS),
        (Pipeline("1f1b", 4, 8, forward_ns=30 * MS, input_ns=35 * MS, weight_ns=25 * MS), 3 * 90 * MS),
        (Pipeline("interleaved", 4, 8, 2, 30 * MS, 36 * MS, 24 * MS), 3 * 45 * MS),
        (Pipeline("zb1p", 4, 8, forward_ns=30 * MS, input_ns=35 * MS, weight_ns=25 * MS), 3 * 40 * MS),
        (Pipeline("zb2p", 4, 8, forward_ns=30 * MS, input_ns=35 * MS, weight_ns=25 * MS), 3 * 15 * MS),
        (Pipeline("zbv", 4, 8, forward_ns=30 * MS, input_ns=30 * MS, weight_ns=30 * MS), 0),
        (Pipeline("dualpipe", 4, 8, forward_ns=30 * MS, input_ns=30 * MS, weight_ns=30 * MS), 60 * MS),
    ],
    ids=lambda value: name(value) if isinstance(value, Pipeline) else "",
)
def test_laws_with_given_times(job: Pipeline, law_ns: int, tmp_path: Path) -> None:
    (row,) = bubbles(work_of(job, tmp_path)).to_pylist()

    assert row["law_ns"] == pytest.approx(law_ns, abs=20)
    assert row["bubble_ns"] == pytest.approx(law_ns, abs=0.001 * row["dur_ns"])


def test_transfer_costs_what_it_adds_to_the_step(tmp_path: Path) -> None:
    even = Pipeline("1f1b", 4, 12)
    slow = dataclasses.replace(even, link_ns={(1, 2): 9 * MS, (2, 1): 9 * MS})
    (row,) = bubbles(work_of(slow, tmp_path)).to_pylist()

    lost_ns = pipelines.length_ns(slow) - pipelines.length_ns(even)
    assert lost_ns > 0
    assert row["transfer_ns"] == pytest.approx(lost_ns, rel=0.02)
    assert row["imbalance_ns"] == pytest.approx(0, abs=20)
    assert row["bubble_ns"] == pytest.approx(row["law_ns"], abs=20), "transfer is not in the bubble"


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb1p"])
@pytest.mark.parametrize("heavy", [0, 2, 3])
def test_an_uneven_split_costs_what_an_even_one_would_win(schedule: str, heavy: int, tmp_path: Path) -> None:
    """Work moved from the other stages to one: the sum stays, so the even job is the same job split better."""
    even = Pipeline(schedule, 4, 16)
    uneven = dataclasses.replace(even, slow_stages={s: 1.24 if s == heavy else 0.92 for s in range(4)})
    work = work_of(uneven, tmp_path)
    (row,) = bubbles(work).to_pylist()

    lost_ns = pipelines.length_ns(uneven) - pipelines.length_ns(even)
    assert row["imbalance_ns"] == pytest.approx(lost_ns, rel=0.02)
    assert [s["stage"] for s in stages(pipeline(work)).to_pylist() if s["heavy"]] == [heavy]
    assert abs(row["transfer_ns"]) <= 20


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_slow_worker_is_told_from_a_heavy_stage_by_its_copies(replicas: int, tmp_path: Path) -> None:
    even = Pipeline("1f1b", 4, 8)
    slow = dataclasses.replace(even, slow_stages={1: 1.5})
    parts = []
    for number in range(replicas):
        (tmp_path / str(number)).mkdir()
        job = dataclasses.replace(slow if number == replicas - 1 else even, forward_ns=40 * MS + 100 * number)
        parts += [ingest.read(ingest.Source(str(p))) for p in pipelines.timelines(job, tmp_path / str(number), 1)]
    work = stage_work(ingest.merge(parts)["microbatches"])
    rows = bubbles(work).to_pylist()

    lost_ns = pipelines.length_ns(slow) - pipelines.length_ns(even)
    assert [row["replica"] for row in rows] == list(range(replicas))
    assert rows[-1]["worker_ns"] == pytest.approx(lost_ns, rel=0.02)
    assert all(abs(row["imbalance_ns"]) <= 9000 for row in rows)
    assert all(abs(row["worker_ns"]) <= 9000 for row in rows[:-1]), "copies differ by 200 ns a forward"
    of_stage = {row["stage"]: row for row in stages(pipeline(work)).to_pylist()}
    assert of_stage[1]["worker_ratio"] == pytest.approx(1.5, rel=1e-4)
    assert of_stage[1]["slow_replica"] == replicas - 1
    assert of_stage[1]["ratio"] == pytest.approx(1.0, rel=1e-4)


def test_copies_of_a_pipeline_whose_files_name_only_ranks(tmp_path: Path) -> None:
    """Two copies of four stages, ranks 17 to 24: copies of a stage begin together."""
    parts = []
    for copy in range(2):
        job = Pipeline("1f1b", 4, 8, forward_ns=40 * MS + 10 * copy, slow_stages={2: 1.2})
        for stage, path in enumerate(pipelines.timelines(job, tmp_path, 2)):
            path.rename(tmp_path / f"rank_{17 + 2 * stage + copy}.json")
    parts = [ingest.read(ingest.Source(str(path))) for path in sorted(tmp_path.iterdir())]
    work = stage_work(ingest.merge(parts)["microbatches"])
    places = {(row["rank"], row["stage"], row["replica"]) for row in work.to_pylist()}
    assert places == {(17 + 2 * stage + copy, stage, copy) for stage in range(4) for copy in range(2)}
    assert {row["schedule"] for row in bubbles(work).to_pylist()} == {"1f1b"}


def test_idle_by_part_of_the_step(tmp_path: Path) -> None:
    """1F1B: stage s waits for s forwards at first, and for the backwards behind it before its own first one."""
    rows = pipeline(work_of(Pipeline("1f1b", 4, 8), tmp_path)).to_pylist()

    assert [row["first_ns"] for row in rows] == [s * 40 * MS for s in range(4)]
    for row in rows:
        stage, idle = row["stage"], [row[f"{part}_idle_ns"] for part in ("warmup", "steady", "cooldown")]
        assert row["busy_ns"] + sum(idle) == row["dur_ns"]
        assert idle[0] == stage * 40 * MS + (3 - stage) * 80 * MS
        assert row["forward_ns"] == 8 * 40 * MS
        assert row["backward_ns"] == 8 * 80 * MS


def test_a_first_step_that_is_warm_up_is_not_analysed(tmp_path: Path) -> None:
    rows = bubbles(work_of(Pipeline(), tmp_path, 4)).to_pylist()
    assert all(row["analysed"] for row in rows)
    cold = pipelines.timelines(Pipeline(forward_ns=150 * MS), tmp_path, 1)
    warm = [path.read_text() for path in cold]
    for path, first in zip(pipelines.timelines(Pipeline(), tmp_path, 4), warm, strict=True):
        path.write_text(first[:-1] + ", " + path.read_text()[1:].replace('"1":', '"5":').replace('"4":', '"6":'))
    parts = [ingest.read(ingest.Source(str(path))) for path in cold]
    rows = bubbles(stage_work(ingest.merge(parts)["microbatches"])).to_pylist()
    assert [(row["step"], row["analysed"]) for row in rows] == [(1, False), (2, True), (3, True), (5, True), (6, True)]


def test_a_pipeline_of_the_corpus(corpus: Path) -> None:
    """Eight stages, 16 micro-batches: the known answers of the recording."""
    folder = corpus / "primus/tools/visualization/pp_vis/pp_data_example/gpu8_layer64_gbs16/pp8"
    diagnosis = ask.run(folder)
    rows = [row for row in ask.rows(diagnosis, "bubbles") if row["analysed"]]

    def median(column: str) -> float:
        return sorted(row[column] for row in rows)[len(rows) // 2]

    assert [row["step"] for row in rows] == list(range(2, 21)), "the first iteration is warm-up"
    assert {row["schedule"] for row in rows} == {"1f1b"}
    assert median("idle_ratio") == pytest.approx(0.353, abs=0.005)
    assert median("law_ratio") == pytest.approx(0.3043, abs=0.0005)
    assert median("stage_law_ratio") == pytest.approx(0.340, abs=0.002)
