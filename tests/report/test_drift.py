"""The section about the run over its steps: what it says in words, what its figures hold, and when it is absent."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose import report
from diagnose.report import drift
from tests import ask


def blocks(case: str) -> tuple[Any, dict[str, Any]]:
    """The section of a case, and its blocks by title."""
    diagnosis = ask.run(ask.CASES / case / "steps.jsonl")
    section = drift.section(diagnosis, diagnosis.tables)
    assert section is not None
    return section, {block.title: block for block in section.blocks}


def test_a_step_on_one_rank() -> None:
    section, found = blocks("D05")

    assert section.lead == "100 steps compared, 0 to 99: changed at one step, 26.2 % from step 50."
    spec = found["Step after step, and what moved with it"].spec
    names = [trace["name"] for trace in spec["data"]]
    assert names[:3] == ["step time (ms)", "compute time, rank 5 (ms)", "sm clock mhz, rank 5"]
    assert spec["data"][0]["y"][49:51] == [400, 505] and spec["data"][2]["y"][49:51] == [1980, 1410]
    assert [shape["x0"] for shape in spec["layout"]["shapes"] if shape["type"] == "line"] == [50]
    ranks = found["Rank by rank: compute time (ms)"].spec["data"]
    assert [trace["name"] for trace in ranks] == [f"rank {r}" for r in range(8)]
    assert ranks[5]["y"][-1] == 455 and ranks[4]["y"][-1] == 350
    assert [row[0] for row in found["What grew with the step"].rows] == ["clocks", "rank"]


def test_stalls_do_not_flatten_the_steady_line() -> None:
    section, found = blocks("D06")

    assert section.lead.endswith("level; left out: 3 stalls. Stalls come every 40 steps.")
    spec = found["Step after step, and what moved with it"].spec
    top = spec["layout"]["yaxis"]["range"][1]
    assert top == pytest.approx(2.24, rel=0.01), "1.4 s a step; a stall is 361 s"
    (stalls,) = [trace for trace in spec["data"] if trace["mode"] == "markers"]
    assert stalls["x"] == [40, 80, 120] and max(stalls["y"]) < top
    assert "6.00 min longer (periodic)" in stalls["customdata"][0]


def test_a_drift_and_its_part_share_the_axis() -> None:
    section, found = blocks("D14")

    assert "drifting, 50.6 % from step 0" in section.lead
    spec = found["Step after step, and what moved with it"].spec
    assert [trace["name"] for trace in spec["data"]] == ["step time (ms)", "input time (ms)"]
    assert spec["layout"]["xaxis"]["anchor"] == "y2"


def test_long_runs_are_thinned() -> None:
    step, value = drift._thinned(*([drift.np.arange(100_000)] * 2))

    assert len(step) == drift.MOST_POINTS and value[0] == pytest.approx(83, abs=1)


def test_absent_without_step_records() -> None:
    diagnosis = ask.run(ask.CASES / "G01" / "nccl.log")

    assert drift.section(diagnosis, diagnosis.tables) is None


def test_the_page_holds_it() -> None:
    assert 'id="drift"' in report.page(ask.run(ask.CASES / "D01" / "steps.jsonl"))
