"""Traces made on demand get their rank and their steps; what was recorded stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnose.live import finishing

BASE_NS = 1_790_857_026_000_000_000


def event(name: str, ts: str, dur: str, cat: str = "user_annotation", tid: object = 7) -> str:
    """As Kineto writes it."""
    return (
        f'  {{\n    "ph": "X",\n    "cat": "{cat}",\n    "name": "{name}",\n    "pid": 5,\n'
        f'    "tid": {json.dumps(tid)},\n'
        f'    "ts": {ts},\n    "dur": {dur}\n    ,\n    "args": {{"x": 1}}\n  }}'
    )


def trace(*events: str) -> str:
    span = event("PyTorch Profiler (0)", "5124628823702.100", "90000.000", "Trace", "PyTorch Profiler")
    head = f'{{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n'
    return head + ",\n".join([*events, span]) + '\n  ],\n  "traceName": "x"\n}\n'


def steps(*ends: str, name: str = "SGD") -> list[str]:
    return [event(f"Optimizer.step#{name}.step", f"512462882{end}.500", "10.250") for end in ends]


def finish(text: str, tmp_path: Path, **changes: Any) -> tuple[finishing.Finished, dict[str, Any]]:
    (tmp_path / "raw.json").write_text(text)
    given = {"rank": 3, "world_size": 8, "first_step": 41, "calls_per_step": 1} | changes
    found = finishing.finish(tmp_path / "raw.json", tmp_path / "out.json", **given)
    assert not (tmp_path / "raw.json").exists()
    return found, json.loads((tmp_path / "out.json").read_text())


def marks(document: dict[str, Any]) -> list[tuple[str, float, float]]:
    events = [e for e in document["traceEvents"] if e["name"].startswith("ProfilerStep")]
    return [(e["name"], e["ts"], e["dur"]) for e in events]


def test_steps_run_from_one_optimizer_end_to_the_next(tmp_path: Path) -> None:
    found, document = finish(trace(*steps("3800", "3900", "4000")), tmp_path)

    assert found == finishing.Finished(3, BASE_NS + 5124628823702100)
    assert marks(document) == [
        ("ProfilerStep#41", 5124628823702.1, 108.65),
        ("ProfilerStep#42", 5124628823810.75, 100.0),
        ("ProfilerStep#43", 5124628823910.75, 100.0),
    ]
    assert document["distributedInfo"] == {"rank": 3, "world_size": 8}
    assert [e["name"] for e in document["traceEvents"]][3:] == [
        *["Optimizer.step#SGD.step"] * 3,
        "PyTorch Profiler (0)",
    ]


def test_an_optimizer_that_is_called_several_times_a_step(tmp_path: Path) -> None:
    found, document = finish(trace(*steps("3800", "3810", "3900", "3910")), tmp_path, calls_per_step=2)

    assert found.steps_count == 2
    assert [m[1] for m in marks(document)] == [5124628823702.1, 5124628823820.75]


@pytest.mark.parametrize(
    "events", [[], [*steps("3800"), *steps("3900", name="Adam")], steps("3600")], ids=["none", "two", "before"]
)
def test_steps_that_cannot_be_told_are_not_marked(events: list[str], tmp_path: Path) -> None:
    found, document = finish(trace(*events), tmp_path)

    assert found.steps_count is None
    assert marks(document) == []
    assert document["distributedInfo"]["rank"] == 3


def test_a_range_across_two_pieces_is_seen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finishing, "_PIECE", 512)
    monkeypatch.setattr(finishing, "_OVERLAP", 300)

    found, document = finish(trace(*steps("3800", "3900", "4000")), tmp_path)

    assert found.steps_count == 3
    assert len(marks(document)) == 3
