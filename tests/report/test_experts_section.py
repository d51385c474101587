"""The section about experts: what it says, what its figures hold, and when it is absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.report import experts
from tests import ask

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "gloo_experts"


def section(*paths: Path, job: Path | None = None) -> tuple[Any, dict[str, Any]]:
    """The section of a run and its blocks by title."""
    diagnosis = ask.run(*paths, job=job)
    found = experts.section(diagnosis, diagnosis.tables)
    assert found is not None
    return found, {getattr(block, "title", ""): block for block in found.blocks}


def test_drops_and_load_of_a_case() -> None:
    found, blocks = section(ask.CASES / "F01" / "steps.jsonl")

    assert found.lead == "The busiest expert gets 2.93 times an even share; 29.8 % of the assignments are dropped."
    heat = blocks["Load of every expert"].spec["data"][0]
    assert heat["y"] == ["3", "4"] and heat["x"] == list(range(8))
    assert heat["customdata"][0][0] == "2.93" and heat["z"][0][0] == pytest.approx(1.551, abs=0.001)
    assert [row[0] for row in blocks["Layers"].rows] == ["3", "4"]
    assert [row[6] for row in blocks["Layers"].rows] == ["29.8 %", "29.8 %"]
    assert [row[7] for row in blocks["Layers"].rows] == ["before any drop", "after the drop"]
    assert "Load over steps" not in blocks, "one step is no course"


def test_a_dropless_run_has_no_drop_rate() -> None:
    found, blocks = section(ask.CASES / "F03" / "steps.jsonl")
    assert "nothing is dropped by design" in found.lead and "0 %" not in found.lead
    assert dict(blocks[""].items)["Capacity factor"] == "none: dropless"
    assert blocks["Layers"].rows[0][-2] == "none by design"


def test_bytes_and_rounds_of_a_real_run() -> None:
    folder = RUNS / "replicated"
    found, blocks = section(*sorted(folder.glob("*_rank*.gz")), job=folder / "job.toml")
    assert "perfectly balanced, a step would be" in found.lead
    bars = {trace["name"]: trace for trace in blocks["What an exchange with experts carries, per rank"].spec["data"]}
    assert set(bars) == {"needed", "copies"}
    assert bars["needed"]["x"] == bars["copies"]["x"] == [128.0] * 4, "KiB: every token goes to two ranks"
    assert bars["needed"]["y"] == ["to experts, expected", "to experts, measured", "back, expected", "back, measured"]
    rounds = blocks["Rounds through the experts"].spec["data"]
    assert {trace["name"] for trace in rounds} == {"waiting for a rank", "moving tokens", "experts compute"}
    assert {place for trace in rounds for place in trace["y"]} == {f"rank {rank}" for rank in range(4)}
    assert len(blocks["Load over steps"].spec["data"]) == 3


def test_traces_alone_say_what_to_log() -> None:
    _, blocks = section(*sorted((RUNS / "balanced").glob("trace_rank*.gz")))
    assert "tokens_per_expert" in blocks.get("", blocks).text
    figure = blocks["What an exchange with experts carries, per rank"]
    assert "unknown" in figure.note and "model.topk" in figure.note


def test_absent_without_experts() -> None:
    diagnosis = ask.run(ask.CASES / "D05" / "steps.jsonl")
    assert experts.section(diagnosis, diagnosis.tables) is None
