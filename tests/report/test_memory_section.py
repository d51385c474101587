"""The memory section: figures in bytes that sum, the failure first, words for what is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.report import memory, page
from diagnose.report._blocks import Figure, Grid
from diagnose.report._memory_figures import axis_unit, bars, over_time
from diagnose.report._memory_parts import MEMORY_PARTS, memory_part
from tests import ask

GIB = 1 << 30


@pytest.fixture(scope="module")
def failed() -> Any:
    return ask.run(ask.CASES / "C01" / "snapshot.pickle", ask.CASES / "C01" / "oom.log")


def section(diagnosis: Any) -> Any:
    return memory.section(diagnosis, diagnosis.tables)


def blocks(diagnosis: Any, kind: type) -> dict[str, Any]:
    return {b.title: b for b in section(diagnosis).blocks if isinstance(b, kind)}


def test_the_lead_is_the_failure(failed: Any) -> None:
    assert section(failed).lead.endswith(
        "asked for 512 MiB and failed; 3.61 GiB were free in all, the largest piece 90.0 MiB."
    )


def test_bars_sum_to_the_device_use(failed: Any) -> None:
    spec = blocks(failed, Figure)["Memory by part"].spec
    assert sum(bar["x"][0] for bar in spec["data"]) == pytest.approx(8 - 100 / 1024, abs=0.01)
    assert spec["layout"]["shapes"][0]["x0"] == 8, "the device"
    assert [bar["name"] for bar in spec["data"]] == ["parameters", "activations", "fragmentation", "outside PyTorch"]


def test_holes_stand_against_the_request(failed: Any) -> None:
    spec = blocks(failed, Figure)["Segments with most free memory"].spec
    assert spec["layout"]["shapes"][0]["x0"] == pytest.approx(0.5)
    assert spec["data"][0]["y"] == ["0x7f2000000000"]
    grid = blocks(failed, Grid)["Who keeps these segments"]
    assert grid.rows[0][3] == "90.0 MiB" and "layer_act" in grid.rows[0][6].shown


def test_unknown_values_are_said_once(failed: Any) -> None:
    assert "other processes" in blocks(failed, Grid)["State of the allocator"].more


def test_the_page_holds_it_and_nothing_from_outside(failed: Any) -> None:
    text = page(failed)
    assert 'id="memory"' in text and "part-fragmentation" in text


def test_a_log_of_figures_is_drawn_by_step() -> None:
    diagnosis = ask.run(ask.CASES / "C09" / "steps.jsonl")
    (figure,) = blocks(diagnosis, Figure).values()
    assert [line["name"] for line in figure.spec["data"]] == ["allocated", "reserved", "peak allocated"]
    assert figure.spec["layout"]["xaxis"]["title"]["text"] == "step"


def test_nothing_about_memory_is_no_section(tmp_path: Path) -> None:
    (tmp_path / "loss.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n')
    assert section(ask.run(tmp_path / "loss.jsonl")) is None


def test_units_and_names() -> None:
    assert axis_unit(4 * GIB - 1) == (1 << 20, "MiB") and axis_unit(4 * GIB) == (GIB, "GiB")
    assert bars(["a"], {"parameters": [5 * GIB]}, None)["data"][0]["x"] == [5.0]
    drawn = over_time([0, 1], {"parameters": [0, 5 * GIB]}, {"reserved": [None, 6 * GIB]}, "step")
    assert [line["y"] for line in drawn["data"]] == [[0.0, 5.0], [None, 6.0]]
    labels = [part.label for part in MEMORY_PARTS.values()]
    assert len(set(labels)) == len(labels) and memory_part("of_next_year").label == "of_next_year"
