"""The pipeline on the page: every piece drawn where it ran, the ideal under it on one scale, parts that sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import diagnose
from diagnose.report import page, pipeline
from diagnose.report._blocks import Facts, Figure, Grid, Share, Text
from fixtures.simulate import pipelines
from fixtures.simulate.pipelines import MS, Pipeline


def section_of(job: Pipeline, folder: Path) -> Any:
    pipelines.timelines(job, folder, 3)
    diagnosis = diagnose.run([str(folder)])
    return diagnosis, pipeline.section(diagnosis, diagnosis.tables)


def blocks(section: Any, kind: type) -> list[Any]:
    return [block for block in section.blocks if isinstance(block, kind)]


def drawn(figure: Figure) -> list[tuple[int, str, float, float, str]]:
    """(stage, phase, start ms, end ms, micro-batch) of every bar."""
    go.Figure(figure.spec)  # raises on a wrong property
    return sorted(
        (y, trace["name"], base, base + x, text)
        for trace in figure.spec["data"]
        for y, base, x, text in zip(trace["y"], trace["base"], trace["x"], trace["text"], strict=True)
    )


def test_every_piece_is_drawn_where_it_ran_and_the_ideal_under_it(tmp_path: Path) -> None:
    job = Pipeline("1f1b", 4, 6, slow_stages={3: 1.5})
    _, section = section_of(job, tmp_path)
    measured, ideal = blocks(section, Figure)

    names = {"F": "forward", "B": "backward"}
    expected = sorted(
        (d.stage, names[d.phase], d.start_ns / MS, d.end_ns / MS, str(d.microbatch)) for d in pipelines.run(job)
    )
    for found, want in zip(drawn(measured), expected, strict=True):
        assert (found[0], found[1], found[4]) == (want[0], want[1], want[4])
        assert found[2:4] == pytest.approx(want[2:4], abs=0.001)
    even = max(end for _, _, _, end, _ in drawn(ideal))
    assert even == pytest.approx((6 + 3) * 120 * 1.125, abs=0.01), "the mean stage is 12.5 % longer"
    assert measured.spec["layout"]["xaxis"]["range"] == ideal.spec["layout"]["xaxis"]["range"], "one scale"
    assert len({c for trace in measured.spec["data"] for c in trace["marker"]["color"]}) == 8, "phase and micro-batch"


def test_parts_sum_to_the_step_and_stages_are_told_apart(tmp_path: Path) -> None:
    _, section = section_of(Pipeline("1f1b", 4, 8, slow_stages={3: 1.5}), tmp_path)
    step, stages = blocks(section, Grid)

    assert [row[0] for row in step.rows] == [
        "work", "schedule's bubble", "uneven stages", "uneven micro-batches", "transfer and delay", "sum",
    ]  # fmt: skip
    shares = [float(row[2].text.split()[0]) for row in step.rows]
    assert sum(shares[:-1]) == pytest.approx(100, abs=0.3)
    assert [row[0] for row in stages.rows] == [f"stage {n}" for n in range(4)]
    assert [title for title, _ in stages.columns][-4:] == ["Warm-up idle", "Steady idle", "Cool-down idle", "Idle"]
    assert stages.rows[3][4] == "150.0 %"
    assert isinstance(stages.rows[0][-1], Share)
    assert section.lead.startswith("4 stages, 8 micro-batches, 1F1B: ")
    facts = dict(blocks(section, Facts)[0].items)
    assert facts["Idle by its law, even stages"] == "27.3 %"


def test_a_schedule_whose_ramps_may_overlap_says_so(tmp_path: Path) -> None:
    _, section = section_of(Pipeline("zb2p", 4, 8), tmp_path)
    rows = {row[0]: row[1] for row in blocks(section, Grid)[0].rows}
    assert rows["ramp"] == "120 ms"
    assert rows["schedule's bubble"] == "0 ns"


def test_settings_alone_give_a_law_and_no_chart(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"pp": 8, "micro_batches": 64}')
    diagnosis = diagnose.run([str(path)])
    section = pipeline.section(diagnosis, diagnosis.tables)
    assert section is not None
    assert section.lead == "8 stages, 64 micro-batches, 1F1B: 9.9 % of the step idles by the schedule's law."
    assert "not measured" in blocks(section, Text)[0].text
    assert blocks(section, Figure) == []


def test_without_a_pipeline_there_is_no_section(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"pp": 1, "tp": 8}')
    diagnosis = diagnose.run([str(path)])
    assert pipeline.section(diagnosis, diagnosis.tables) is None


def test_many_pieces_are_cut_and_it_is_said(tmp_path: Path) -> None:
    diagnosis, section = section_of(Pipeline("1f1b", 16, 128), tmp_path)
    measured, _ = blocks(section, Figure)
    assert sum(len(trace["y"]) for trace in measured.spec["data"]) == pipeline.MOST_PIECES
    assert measured.note == "The first 3,000 of 4,096 pieces of work."
    assert len(page(diagnosis)) < 8_000_000
