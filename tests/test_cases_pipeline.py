"""Pipelines that were recorded or described in public, and perturbed copies of them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import UsageError
from diagnose.selection import Selection
from fixtures.simulate import pipelines
from fixtures.simulate.pipelines import MS, Pipeline
from tests import ask, perturb
from tests.perturb import ALL, Variant

TIMELINES = "primus/tools/visualization/pp_vis/pp_data_example/gpu8_layer64_gbs16/pp8"
LOGS = "bigscience/experiments/gpt2-meg/meg_gpt2_base_n{0}_dp1_tp4_pp{0}-*.out"


def bubble_question(diagnosis: Any) -> Any:
    return next(q for q in diagnosis.questions if "bubble" in q["question"])


def test_timelines_name_the_last_stage(corpus: Path) -> None:
    diagnosis = ask.run(corpus / TIMELINES)
    assert ask.found(diagnosis) == ["pipeline-bubble", "stage-imbalance"]
    uneven = ask.finding(diagnosis, "stage-imbalance")
    assert uneven.evidence["stage"] == 7
    assert uneven.evidence["compute_ns"] == pytest.approx(141.9e6, rel=0.01)
    assert uneven.evidence["others_ns"] == pytest.approx(129.6e6, rel=0.01)
    assert uneven.lost_ns == pytest.approx(160e6, rel=0.05)
    bubble = ask.finding(diagnosis, "pipeline-bubble")
    assert bubble.evidence["law_ratio"] == pytest.approx(0.304, abs=0.001)
    assert bubble.evidence["idle_ratio"] == pytest.approx(0.353, abs=0.005)
    assert bubble.evidence["stage_law_ratio"] == pytest.approx(0.34, abs=0.005)
    assert bubble_question(diagnosis)["answer"] == "no"
    assert ask.symptom(diagnosis, "low_speedup").status == "found"


def perturbed(corpus: Path, folder: Path, edit: Any, name: str = "pp_rank_{}.json") -> Any:
    """The recording with `edit(stage, iteration's lists)` applied, under other names."""
    for stage in range(8):
        dump = json.loads((corpus / TIMELINES / f"pp_rank_{stage}.json").read_text())
        for lists in dump.values():
            edit(stage, lists)
        (folder / name.format(stage)).write_text(json.dumps(dump))
    return ask.run(folder)


def test_other_names_and_another_unit_of_work(corpus: Path, tmp_path: Path) -> None:
    """Seven times slower in all, iterations from 1001 on, files without "rank" in their names."""

    def slower(stage: int, lists: Any) -> None:
        for key, values in lists.items():
            if key.endswith(("_start", "_end")):
                lists[key] = [7 * value for value in values]

    diagnosis = perturbed(corpus, tmp_path, slower, "stage-{}.json")
    uneven = ask.finding(diagnosis, "stage-imbalance")
    assert uneven.evidence["stage"] == 7
    assert uneven.lost_ns == pytest.approx(7 * 160e6, rel=0.05)


@pytest.mark.parametrize("name", ["x{}.json"])
def test_stages_in_any_order_of_files(corpus: Path, tmp_path: Path, name: str) -> None:
    for stage in range(8):
        shutil.copy(corpus / TIMELINES / f"pp_rank_{stage}.json", tmp_path / name.format(chr(ord("h") - stage)))
    uneven = ask.finding(ask.run(tmp_path), "stage-imbalance")
    assert uneven.evidence["stage"] == 7


@pytest.mark.parametrize(("stages", "share"), [(4, 0.43), (8, 0.64), (16, 0.79)])
def test_logs_that_print_stages_and_batches(corpus: Path, stages: int, share: float) -> None:
    (path,) = corpus.glob(LOGS.format(stages))
    diagnosis = ask.run(path)
    found = ask.finding(diagnosis, "pipeline-bubble")
    assert found.evidence["share_ratio"] == pytest.approx(share, abs=0.005)
    assert found.lost_ratio == pytest.approx(share, abs=0.005)
    assert (found.lost_kind, found.evidence["measured"]) == ("bound", False)
    assert "not measured" in found.summary
    assert bubble_question(diagnosis)["answer"] == "no"
    assert ask.outcome(diagnosis, "stage-imbalance").startswith("skipped"), "settings measure no stage"


def test_a_log_with_many_micro_batches_is_clear(corpus: Path) -> None:
    diagnosis = ask.run(corpus / "bigscience/experiments/gpt2-meg-ds-3d/meg_ds_3d_gpt2_perf_n16-ds-off.out")
    question = bubble_question(diagnosis)
    assert ask.outcome(diagnosis, "pipeline-bubble").startswith("clear")
    assert question["answer"] == "yes"
    assert "16 stages and 256 micro-batches: 5.5% of the step by the schedule's law" in question["figure"]


@pytest.mark.parametrize(("stages", "microbatches"), [(8, 64), (4, 8), (16, 256)])
def test_e16_low_efficiency_is_configuration(stages: int, microbatches: int, tmp_path: Path) -> None:
    given = json.loads((ask.CASES / "E16" / "config.json").read_text())
    path = tmp_path / "run.json"
    path.write_text(json.dumps(given | {"pp": stages, "micro_batches": microbatches}))
    diagnosis = ask.run(path)
    differs = ask.finding(diagnosis, "config-difference")
    assert "train.recompute full against none" in differs.summary
    assert f"pp {stages} against 2" in differs.summary
    assert ask.finding(diagnosis, "full-recompute").evidence["share_ratio"] == pytest.approx(0.25, abs=0.001)
    assert ask.symptom(diagnosis, "comm_saturation").status == "unknown", "nothing says that the network is slow"
    law = (stages - 1) / (microbatches + stages - 1)
    if law > 0.08:
        assert ask.finding(diagnosis, "pipeline-bubble").evidence["share_ratio"] == pytest.approx(law)
    else:
        assert ask.outcome(diagnosis, "pipeline-bubble").startswith("clear")


@pytest.mark.parametrize("variant", ALL, ids=perturb.names(ALL))
def test_e17_runs_on_other_hardware_do_not_compare(variant: Variant, tmp_path: Path) -> None:
    files = perturb.write(ask.CASES / "E17", tmp_path, variant)
    diagnosis = ask.run(*files)
    (said,) = [row["detail"] for row in diagnosis.quality if row["problem"] == "several_runs"]
    assert "no joint verdict" in said
    assert "they ran on different GPUs" in said
    assert "80GB-A" in said and "80GB-B" in said
    assert "speeds do not compare" in said
    assert all("speed-up" not in finding.summary for finding in diagnosis.findings)
    for path in files if variant is perturb.ORIGINAL else ():
        alone = ask.run(path)
        assert ask.problems(alone)["several_runs"] == 0
        assert alone.job["gpu"].startswith("NVIDIA TestGPU 80GB-")


def test_runs_on_equal_hardware_are_only_told_apart(tmp_path: Path) -> None:
    files = perturb.write(ask.CASES / "E17", tmp_path, perturb.ORIGINAL)
    for path in files:
        path.write_text(path.read_text().replace("80GB-B", "80GB-A"))
    (said,) = [row["detail"] for row in ask.run(*files).quality if row["problem"] == "several_runs"]
    assert "no joint verdict" in said
    assert "different GPUs" not in said


@pytest.mark.parametrize(
    ("heavy", "scale", "name"), [(0, 1, "pp_rank_{}.json"), (3, 9, "stage{}.json"), (5, 2, "{}.json")]
)
def test_another_heavy_stage_is_named_with_what_an_even_split_wins(
    heavy: int, scale: int, name: str, tmp_path: Path
) -> None:
    times = {"forward_ns": 60 * MS * scale, "input_ns": 35 * MS * scale, "weight_ns": 35 * MS * scale}
    even = Pipeline("1f1b", 8, 16, **times)
    uneven = dataclasses.replace(even, slow_stages={s: 1.21 if s == heavy else 0.97 for s in range(8)})
    pipelines.timelines(uneven, tmp_path, 4, name)
    diagnosis = ask.run(tmp_path)
    found = ask.finding(diagnosis, "stage-imbalance")
    assert found.evidence["stage"] == heavy
    assert found.lost_ns == pytest.approx(pipelines.length_ns(uneven) - pipelines.length_ns(even), rel=0.02)
    assert set(ask.found(diagnosis)) == {"stage-imbalance", "pipeline-bubble"}


def test_a_healthy_pipeline_has_no_finding(tmp_path: Path) -> None:
    pipelines.timelines(Pipeline("1f1b", 4, 64), tmp_path, 3)
    diagnosis = ask.run(tmp_path)
    assert diagnosis.findings == []
    assert bubble_question(diagnosis)["answer"] == "yes"
    assert "4.5% of the step is the schedule's bubble, as measured" in bubble_question(diagnosis)["figure"]


def test_only_the_selected_steps_count(corpus: Path) -> None:
    diagnosis = ask.run(corpus / TIMELINES, selected=Selection(steps=(4, 9)))
    assert {row["step"] for row in ask.rows(diagnosis, "bubbles")} == set(range(4, 10))
    assert ask.finding(diagnosis, "stage-imbalance").evidence["steps_count"] == 6
    with pytest.raises(UsageError, match="not in these inputs"):
        ask.run(corpus / TIMELINES, selected=Selection(steps=(90, 99)))
