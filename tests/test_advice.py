"""A plan in the diagnosis: only where the job is known, calibrated with the run, tied to its findings."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose import _job_facts, _measured_rates, advice
from diagnose.ingest.job_toml import KEYS
from diagnose.planner import Job, calibrate, predict, search
from diagnose.planner.layers import product_s
from diagnose.planner.measured import measured_of
from diagnose.planner.reading import EXTRA_KEYS, TABLES
from diagnose.report import plan as plan_section
from diagnose.report._blocks import Facts, Figure, Grid, Paste
from fixtures.simulate.files import write
from fixtures.simulate.scenarios import SCENARIOS
from tests.report.validation import check

SCENARIO = SCENARIOS["thin-tensor-parallel"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], str]:
    """Two traces of a job whose tensor parallelism is too wide, and its job.toml."""
    folder = tmp_path_factory.mktemp("thin")
    paths = write(SCENARIO, folder, ranks=2)
    job = (folder / "job.toml").read_text()
    job = job.replace("[model]\n", "[model]\ngated = false\n")
    return paths, job.replace("micro_batch = 8\n", "micro_batch = 8\nglobal_batch = 8\n")


@pytest.fixture(scope="module")
def diagnosed(recorded: tuple[list[Path], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The diagnosis with a text of job.toml (empty: none), once per text."""
    folder, known = tmp_path_factory.mktemp("jobs"), dict[str, Any]()

    def run(job: str) -> Any:
        if job not in known:
            path = folder / f"job{len(known)}.toml"
            path.write_text(job)
            known[job] = diagnose.run([str(p) for p in recorded[0]], job=str(path) if job else None)
            check(known[job].to_dict())
        return known[job]

    return run


def test_the_plan_narrows_tensor_parallelism_and_names_the_finding_it_answers(
    recorded: Any, diagnosed: Callable[[str], Any]
) -> None:
    found = diagnosed(recorded[1])
    plan = found.plan
    assert plan and not found.plan_reason
    best = plan["candidates"][0]
    assert plan["current"]["layout"]["tp"] == 8
    assert best["layout"]["tp"] < 8 and best["speedup_low_ratio"] > 1
    assert "thin-tensor-parallel" in best["answers"]
    measured, modelled = (plan["calibration"]["reproduced"][0][k] for k in ("measured", "modelled"))
    assert measured == pytest.approx(found.step_time["median_ns"] * 1e-9)
    assert modelled == pytest.approx(measured, rel=0.10)
    assert plan["calibration"]["outside_ns"] == next(
        p["dur_ns"] for p in found.step_time["parts"] if p["part"] == "input"
    )
    assert sum(p["dur_ns"] for p in plan["current"]["parts"]) == pytest.approx(plan["current"]["step_ns"], abs=9)


def test_every_fact_says_where_it_comes_from(recorded: Any, diagnosed: Callable[[str], Any]) -> None:
    facts = {fact["key"]: fact for fact in diagnosed(recorded[1]).plan["facts"]}
    assert facts["model.layers"] == {"key": "model.layers", "value": 8, "source": "given"}
    assert facts["cluster.gpu"]["source"] == "read from the recording"
    assert facts["layout.pp"]["source"] == "no such group is known"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("layers = 8\n", ""), "not known: model.layers; add them to job.toml (--job)"),
        (("vocab = 32000\n", ""), "not known: model.vocab"),
        (("global_batch = 8\n", ""), "not known: train.global_batch"),
        (("nodes = 1", "nodes = 2"), "job.toml describes 16 GPUs, the recording is of 8 ranks"),
        (("[cluster]\n", '[cluster]\ngpu = "A100-80GB"\n'), "the planner takes 'A100-80GB' for A100-80GB"),
        (("hidden = 1024", "hidden = 16384"), "times what the model gives for this job"),
        (("heads = 8", "heads = 7"), "7 heads do not divide hidden 1024"),
        (("layers = 8", "layers = 0"), "model.layers = 0"),
    ],
)
def test_what_is_missing_contradicts_or_is_nonsense_gives_one_line(
    recorded: Any, diagnosed: Callable[[str], Any], change: tuple[str, str], reason: str
) -> None:
    assert change[0] in recorded[1]
    found = diagnosed(recorded[1].replace(*change))
    assert found.plan is None
    assert reason in found.plan_reason and "\n" not in found.plan_reason
    section = plan_section.section(found, found.tables)
    assert section is not None and reason in section.lead and not section.blocks


def test_a_layout_nobody_told_is_taken_from_process_groups_and_says_so(
    recorded: Any, diagnosed: Callable[[str], Any]
) -> None:
    plan = diagnosed(recorded[1].replace("[layout]\ndp = 1\ntp = 8\n", "")).plan
    facts = {fact["key"]: (fact["value"], fact["source"]) for fact in plan["facts"]}
    assert facts["layout.tp"] == (8, "process groups") and facts["layout.dp"] == (1, "from the others")


def test_without_a_job_nothing_is_said_and_the_planner_is_not_imported(
    recorded: Any, diagnosed: Callable[[str], Any]
) -> None:
    found = diagnosed("")
    assert (found.plan, found.plan_reason[:22]) == (None, plan_section.NOTHING_TO_SAY)
    assert plan_section.section(found, found.tables) is None
    script = (
        "import sys, diagnose; diagnose.run(sys.argv[1:]);"
        "sys.exit(any(name.startswith('diagnose.planner') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", script, str(recorded[0][0])], check=True)


def test_facts_that_inputs_dispute_are_no_facts(recorded: Any, diagnosed: Callable[[str], Any]) -> None:
    found = diagnosed(recorded[1])
    settings = found.tables["settings"]
    logged = [("model.layers", "24", "a.log"), ("train.zero", "2", "a.log"), ("train.zero", "3", "b.log")]
    rows = [*settings.to_pylist(), *({"key": k, "value": v, "source": s} for k, v, s in logged)]
    table = type(settings).from_pylist(rows, schema=settings.schema)
    changed = dataclasses.replace(found, tables={**found.tables, "settings": table})
    known = {fact.key: fact for fact in _job_facts.collect(changed).known}
    assert (known["model.layers"].value, known["model.layers"].source) == (8, "given")
    assert "train.zero" not in known


def test_the_section_shows_figures_reasons_and_settings(recorded: Any, diagnosed: Callable[[str], Any]) -> None:
    found = diagnosed(recorded[1])
    section = plan_section.section(found, found.tables)
    assert section is not None and "times as fast" in section.lead
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    assert [figure.title.split(" ")[0] for figure in figures] == ["Step", "Peak", "Time"]
    per_layout = [sum(values) for values in zip(*(bar["x"] for bar in figures[0].spec["data"]), strict=True)]
    assert per_layout[0] == pytest.approx(found.plan["current"]["step_ns"] / 1e6)
    assert figures[1].spec["layout"]["shapes"]
    facts = next(block for block in section.blocks if isinstance(block, Facts))
    assert "%" in facts.items[0][1]
    grid = next(block for block in section.blocks if isinstance(block, Grid))
    assert "thin-tensor-parallel" in grid.rows[0][7]
    assert {block.title.split(":")[0] for block in section.blocks if isinstance(block, Paste)} == {
        "megatron",
        "torchtitan",
        "deepspeed",
    }


def test_hostile_names_stay_text(recorded: Any, diagnosed: Callable[[str], Any]) -> None:
    from diagnose import report

    found = diagnosed(recorded[1])
    plan = {**found.plan, "candidates": [dict(c) for c in found.plan["candidates"]]}
    plan["candidates"][0]["flags"] = {"megatron": "</pre><script>alert(1)</script>"}
    page = report.page(dataclasses.replace(found, plan=plan))
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page


def test_time_no_layout_changes_limits_every_speed_up() -> None:
    path = Path(__file__).parents[1] / "docs" / "jobs" / "70b-64.toml"
    job = Job.from_dict(tomllib.loads(path.read_text()))
    step = predict(job).step_ns
    clean, faulty = ({"step_ns": step + lost, "outside_ns": lost} for lost in (0, step))
    best = [search(job, calibrate(job, given), top=3).candidates[0] for given in (clean, faulty)]
    assert best[0].speedup_ratio > best[1].speedup_ratio > 1
    assert best[1].prediction.step.other - best[0].prediction.step.other == pytest.approx(step * 1e-9)


def test_faults_are_outside_and_pipeline_waiting_is_not() -> None:
    parts = [{"part": p, "dur_ns": 10} for p in ("compute", "tp_wait", "tp_transfer", "pp_wait", "input", "gc")]
    found = measured_of({"step_time": {"median_ns": 60, "parts": parts}})
    assert found == {"step_ns": 60, "part_ns": {"compute": 10, "tp": 10}, "outside_ns": 30}
    parts.append({"part": "dp_comm", "dur_ns": 5})
    assert "waiting" in measured_of({"step_time": {"median_ns": 65, "parts": parts}})["notes"][0]


def test_products_measured_twice_as_slow_as_the_model_say_so(recorded: Any, diagnosed: Callable[[str], Any]) -> None:
    from diagnose.analyses.gemms import SCHEMA

    seconds = product_s((4096, 4096, 4096), "H100-80GB", 16, 1)
    assert seconds is not None
    count = _measured_rates.LEAST_CALLS
    row = {"event_id": 0, "rank": 0, "step": 0, "op": "aten::mm", "m": 4096, "n": 4096, "k": 4096, "batch": 1,
           "dtype": "bfloat16", "dur_ns": round(2e9 * seconds), "work_flop": 1.0, "rate_flop_per_s": 1.0,
           "peak_flop_per_s": 2.0, "efficiency_ratio": 0.5}  # fmt: skip

    def measured(rows: int) -> dict[str, float]:
        table = SCHEMA.build({name: [row[name]] * rows for name in SCHEMA.arrow.names})
        return _measured_rates.of_kinds({"gemms": table}, "H100-80GB")

    assert measured(count) == {"matmul": pytest.approx(2.0, rel=1e-3)}
    assert measured(count - 1) == {}


def test_job_toml_and_the_planner_know_the_same_keys() -> None:
    for section, kind in TABLES.items():
        fields = {field.name for field in dataclasses.fields(kind)} | EXTRA_KEYS.get(section, set())
        assert set(KEYS[section]) == fields - {"allowed"}, section


def test_every_answer_is_a_rule_and_a_part() -> None:
    from diagnose import pipeline

    assert set(advice.ANSWERS) - {"pipeline-bubble", "exposed-dispatch"} <= {rule.id for rule in pipeline.rules()}
