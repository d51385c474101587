"""A program whose bytes are known: each part of its memory is found from the profiler's events alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ask

pytest.importorskip("torch", reason="records a real program; needs torch")

PROGRAM = Path(__file__).parents[2] / "fixtures" / "record" / "memory.py"
STATE = ("parameters", "gradients", "optimizer")


def recorded(folder: Path, *more: str) -> tuple[Any, dict[str, int]]:
    subprocess.run([sys.executable, str(PROGRAM), str(folder), *more], check=True, capture_output=True, timeout=300)
    return ask.run(folder / "trace.json"), json.loads((folder / "truth.json").read_text())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, int]]:
    return recorded(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def recomputed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, int]]:
    return recorded(tmp_path_factory.mktemp("recomputed"), "checkpoint")


def before_backward(diagnosis: Any) -> int:
    """Bytes of activations alive when the last backward begins."""
    lives = ask.rows(diagnosis, "lifetimes")
    made = sorted((r["start_index"], r["part"], r["evidence"]) for r in lives if r["start_index"] >= 0)
    backward = [i for i, _, why in made if "backward" in why and "first" not in why]
    forward = [i for i, _, why in made if why == "allocated in forward"]
    start = next(i for i in backward if i > max(forward[: len(forward) * 5 // 6]))
    at = max(i for i in forward if i < start)
    return sum(r["size_bytes"] for r in lives if r["part"] == "activations" and r["start_index"] <= at < r["end_index"])


def of(diagnosis: Any, part: str) -> int:
    """Most that a part ever held; of the optimizer what stays at the end (its steps need temporaries)."""
    if part == "optimizer":
        return sum(m["bytes"] for m in diagnosis.memory if m["moment"] == "end" and m["part"] == part)
    return max(row[f"{part}_bytes"] for row in ask.rows(diagnosis, "memory"))


@pytest.mark.parametrize("part", STATE)
def test_each_part_of_the_state(part: str, plain: Any, recomputed: Any) -> None:
    for diagnosis, truth in (plain, recomputed):
        assert of(diagnosis, part) == pytest.approx(truth[part], rel=0.05)


def test_activations(plain: Any) -> None:
    diagnosis, truth = plain
    assert before_backward(diagnosis) == pytest.approx(truth["activations"], rel=0.1)


def test_recomputation_moves_activations_only(plain: Any, recomputed: Any) -> None:
    before, after = plain[0], recomputed[0]
    for part in STATE:
        assert of(after, part) == pytest.approx(of(before, part), rel=0.001), part
    assert of(after, "activations") < 0.5 * of(before, "activations")


def test_parts_sum_to_what_is_allocated(plain: Any) -> None:
    for row in ask.rows(plain[0], "memory"):
        parts = ("parameters", "gradients", "optimizer", "activations", "comm_buffers", "unknown")
        assert sum(row[f"{part}_bytes"] for part in parts) == row["allocated_bytes"]
