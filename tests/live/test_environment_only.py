"""An unmodified script of 2 ranks with loader workers, started with environment variables only, is captured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diagnose.live import _guard, kineto_capture, kineto_ipc, launching
from tests.live import jobs

pytest.importorskip("torch")
RANKS = 2


def test_captured_exactly_and_left_alone(tmp_path: Path) -> None:
    """Three steps of both ranks; launcher and workers ignored; a second capture is under way when the job ends."""
    made = launching.plan(tmp_path / "run", os.environ, hook=False)
    command = jobs.torchrun(RANKS, jobs.program(tmp_path), 300, 0.02, 0, 0, 1, 0)
    job = jobs.start(command, tmp_path, **made.added)
    try:
        first = kineto_capture.capture(made.sockets, made.run / "captures" / "one", [], 3, {}, 90.0)
        assert first.problems == []
        _check(first)
        assert not (made.sockets / kineto_ipc.NAME).exists()
        assert not (made.sockets / _guard.MARK).exists()
        # more steps than are left: the job ends while they are recorded
        last = kineto_capture.Asked(10_000, None, 10, {})
        late = kineto_capture._once(made.sockets, tmp_path / "late", [], last, 60.0)
        assert late.problems == [f"rank {rank}: no trace came (the process ended)" for rank in (0, 1)]
        out, err = job.communicate(timeout=60)
    finally:
        jobs.stop(job)

    assert job.returncode == 0, err
    assert out.startswith("losses")
    assert not list((tmp_path / "run").glob("attempt*")), "no hook was in it"


def _check(outcome: kineto_capture.Outcome) -> None:
    assert sorted(outcome.files) == [0, 1], "neither the launcher nor the loader workers"
    starts = []
    for rank, path in outcome.files.items():
        trace = json.loads(path.read_text())
        names = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
        assert sum(n.startswith("Optimizer.step#") for n in names) == 3
        assert [n for n in names if n.startswith("ProfilerStep")] == [f"ProfilerStep#{n}" for n in (1, 2, 3)]
        assert trace["distributedInfo"] == {"rank": rank, "world_size": RANKS}
        starts.append(min(e["ts"] for e in trace["traceEvents"] if e["name"] == "ProfilerStep#1"))
    assert max(starts) - min(starts) < 50_000, "microseconds"
