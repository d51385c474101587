"""An unchanged DDP script of 4 gloo ranks under `diagnose launch`: recorded, watched, captured, and as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from diagnose import pipeline
from diagnose.live import asking, ranks, watching
from tests.live import jobs

pytest.importorskip("torch")
RANKS, SLOW, STEPS, EXIT = 4, 2, 220, 3


class Job:
    """The same program twice: plain, and launched with a capture in the middle."""

    plain: subprocess.CompletedProcess[str]
    code: int
    out: str
    err: str
    run: Path
    live: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    status: list[dict[str, Any]]
    capture: dict[str, Any]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("job")
    program, made = jobs.program(folder), Job()
    made.run = folder / "run"
    fast = jobs.forked(RANKS, program, STEPS, 0, SLOW, 0, 0, EXIT)
    made.plain = subprocess.run(
        fast, cwd=folder, env=jobs.environment(), capture_output=True, text=True, check=False, timeout=120
    )
    slow = jobs.torchrun(RANKS, program, STEPS, 0.02, SLOW, 0.015, 0, EXIT)
    running = jobs.start([sys.executable, "-m", "diagnose", "launch", "--run", "run", "--", *slow], folder)
    try:
        jobs.wait_until(jobs.stepping(made.run, RANKS, 40), running)
        found = ranks.of_run(made.run)
        made.live = watching.rows(found)
        made.layers = [watching.ladder(r, row) for r, row in zip(found.ranks, made.live, strict=True)]
        made.status = asking.ask_all(found.ranks, 10.0, verb="status")
        done = jobs.diagnose("attach", "run", "capture", "--steps", 3, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        made.capture = json.loads(done.stdout)
        made.out, made.err = running.communicate(timeout=120)
        made.code = running.returncode
        yield made
    finally:
        jobs.stop(running)


def test_exit_code_and_output_are_the_scripts_own(job: Job) -> None:
    assert (job.code, job.plain.returncode) == (1, EXIT), "torchrun makes 1 of any failure"
    assert job.out.split()[0] == "losses"
    ours = [line for line in job.err.splitlines() if line.startswith("diagnose: ")]
    assert ours[-1] == "diagnose: find out why with: diagnose run run"
    assert "the job ended with exit code" in ours[-2]


def test_the_loss_curve_is_the_same_bit_by_bit(job: Job) -> None:
    """Though the launched job was recorded, watched and captured while it trained."""
    assert job.out == job.plain.stdout


def test_all_ranks_left_every_step(job: Job) -> None:
    tables = pipeline.read([str(job.run / "attempt000")], workers=1)
    steps = tables["series"].filter(pc.equal(tables["series"]["metric"].cast("string"), "step_time_ns"))

    for rank in range(RANKS):
        seen = steps.filter(pc.equal(steps["rank"], rank))["step"].to_pylist()
        assert seen == list(range(2, STEPS + 1))
    assert not list((job.run / "attempt000").glob("*.ring")), "the history has all of it"


def test_the_slow_rank_is_named(job: Job) -> None:
    found = pipeline.run([job.run / "attempt000"], workers=1)

    (finding,) = [f for f in found.findings if f.rule == "slow-rank"]
    assert finding.ranks == (SLOW,)
    assert 5e6 < finding.lost_ns < 25e6, "15 ms were put in"
    assert next(s for s in found.symptoms if s.symptom == "low_speedup").status == "found"


def test_the_failed_job_is_told(job: Job) -> None:
    tables = pipeline.read([str(job.run)], workers=1)
    told = {r["problem"]: r["detail"] for r in tables["quality"].to_pylist()}

    assert told["job_failed"] == "the job ended with exit code 1"
    settings = dict(zip(tables["settings"]["key"].to_pylist(), tables["settings"]["value"].to_pylist(), strict=True))
    assert "torch.distributed.run" in settings["launch.command"]
    assert settings["KINETO_USE_DAEMON"] == "1"
    assert "TORCH_NCCL_ENABLE_TIMING" not in settings


def test_the_live_view_shows_ranks_and_who_is_late(job: Job) -> None:
    rows = job.live

    assert sorted(r["rank"] for r in rows) == list(range(RANKS))
    assert rows[0]["rank"] == SLOW, "the longest worker stands first"
    assert all(r["state"] == "alive" and r["step_ns"] > 30e6 for r in rows)
    assert all(r["comm_ratio"] is not None and 0 < r["hook_ratio"] < 0.05 for r in rows)


def test_every_rank_answers(job: Job) -> None:
    for layers, status in zip(job.layers, job.status, strict=True):
        assert layers == {"layers": {"control": True, "torch": None, "ring": True}, "meaning": "running"}
        assert status["errors_count"] == 0


def test_the_capture_holds_three_steps_of_all_ranks_at_the_same_step(job: Job) -> None:
    assert job.capture["problems"] == []
    assert sorted(job.capture["files"]) == [str(r) for r in range(RANKS)]
    marks, starts = [], []
    for path in job.capture["files"].values():
        trace = json.loads(Path(path).read_text())
        events = [e for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
        steps = sorted((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
        assert sum(e["name"].startswith("Optimizer.step#") for e in events) == 3
        marks.append([e["name"] for e in steps])
        starts.append(steps[0]["ts"])
    assert marks[0] == [f"ProfilerStep#{job.capture['start'] + 1 + n}" for n in range(3)]
    assert all(m == marks[0] for m in marks)
    assert max(starts) - min(starts) < 50_000, "microseconds"


def test_the_capture_diagnoses(job: Job) -> None:
    found = pipeline.run([job.capture["folder"]], workers=1)

    assert found.step_time["steps_count"] == 3
    assert found.job["world_size"] == RANKS
    assert next(f for f in found.findings if f.rule == "late-rank").ranks == (SLOW,)


def test_the_cost_is_below_one_percent_of_a_step(job: Job) -> None:
    """Thread CPU time of the hook in place, DDP's figures included, against a step of 20 ms; memory; no child left."""
    tables = pipeline.read([str(job.run / "attempt000")], workers=1)
    metric = tables["series"]["metric"].cast("string")
    cost = np.asarray(tables["series"].filter(pc.equal(metric, "hook_cpu_time_ns"))["value"])

    assert len(cost) >= 40
    assert np.median(cost) < 0.01 * 20e6
    assert all(rank.ended for rank in ranks.of_run(job.run).ranks)


def test_nothing_is_left_behind(job: Job) -> None:
    record = json.loads(next(job.run.glob("launch-*.json")).read_text())

    assert not Path(record["sockets"]).exists()
    assert not [p for p in job.run.rglob("*") if p.name.endswith(".tmp")]
