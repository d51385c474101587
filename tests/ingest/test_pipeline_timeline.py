"""Pipeline timelines of Primus: what is in them, what is missing, what is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import ingest
from diagnose.analyses.bubbles import bubbles
from diagnose.analyses.pipeline import pipeline
from diagnose.analyses.schedule_work import schedule_work
from diagnose.analyses.stage_work import stage_work
from diagnose.analyses.stages import stages
from diagnose.ingest import pipeline_timeline
from fixtures.simulate import pipelines
from fixtures.simulate.pipelines import Pipeline
from tests import ask

EDGES = ("start", "end")
WHOLE: dict[str, Any] = {
    "total": 4.0, "memory": 1.0, "fwd_start": [0.0, 1.0], "fwd_end": [1.0, 2.0],
    "bwd_start": [2.0, 3.0], "bwd_end": [3.0, 4.0000001],
}  # fmt: skip


def read(folder: Path, name: str, dump: Any) -> Any:
    path = folder / name
    path.write_text(dump if isinstance(dump, str) else json.dumps(dump))
    return ingest.merge([ingest.read(ingest.Source(str(path)))])


def test_times_are_whole_ns_and_micro_batches_are_counted(tmp_path: Path) -> None:
    tables = read(tmp_path, "pp_rank_3.json", {"7": WHOLE})
    rows = tables["microbatches"].to_pylist()

    assert [(r["phase"], r["microbatch"], r["ts_ns"], r["dur_ns"]) for r in rows] == [
        ("forward", 0, 0, 1_000_000), ("forward", 1, 1_000_000, 1_000_000),
        ("backward", 0, 2_000_000, 1_000_000), ("backward", 1, 3_000_000, 1_000_000),
    ]  # fmt: skip
    assert {(r["step"], r["stage"], r["chunk"], r["source"]) for r in rows} == {(7, 3, None, "primus")}
    assert {r["rank"] for r in rows} == {-1}, "a pipeline rank is no global rank"
    assert tables["files"].to_pylist()[0]["kind"] == "pipeline_timeline"


@pytest.mark.parametrize(
    ("name", "stage", "rank"),
    [
        ("pp_rank_5.json", 5, -1), ("stage2.json", 2, -1), ("pipeline-rank-11.json", 11, -1), ("dump.json", None, -1),
        ("rank_3.json", None, 3), ("run_2024.json", None, -1),
    ],
)  # fmt: skip
def test_the_name_tells_the_stage(name: str, stage: int | None, rank: int, tmp_path: Path) -> None:
    row = read(tmp_path, name, {"1": WHOLE})["microbatches"].to_pylist()[0]
    assert (row["stage"], row["rank"]) == (stage, rank)


def test_stages_without_a_name_are_told_by_who_begins_first(tmp_path: Path) -> None:
    pipelines.timelines(Pipeline("1f1b", 4, 8), tmp_path, 2, "{}.json")
    for old, new in zip(range(4), "dbca", strict=True):
        (tmp_path / f"{old}.json").rename(tmp_path / f"{new}.json")
    diagnosis = ask.run(tmp_path)
    assert {row["schedule"] for row in ask.rows(diagnosis, "bubbles")} == {"1f1b"}
    names = {row["rank"]: Path(row["path"]).stem for row in ask.rows(diagnosis, "files")}
    assert {row["stage"]: names[row["rank"]] for row in ask.rows(diagnosis, "pipeline")} == dict(enumerate("dbca"))


def test_only_a_backward_with_its_weight_gradient_apart_is_an_input_gradient(tmp_path: Path) -> None:
    split = {
        **WHOLE, "fwd_minibatch": [0, 1], "fwd_chunk": [0, 0], "bwd_minibatch": [0, 1], "bwd_chunk": [0, 0],
        "wgrad_start": [5.0], "wgrad_end": [6.0], "wgrad_minibatch": [1], "wgrad_chunk": [0],
    }  # fmt: skip
    rows = read(tmp_path, "pp_rank_0.json", {"1": split})["microbatches"].to_pylist()
    assert [(r["phase"], r["microbatch"]) for r in rows[2:]] == [("backward", 0), ("backward_input", 1), ("weight", 1)]


def test_an_iteration_that_does_not_fit_together_is_left_out_and_said(tmp_path: Path) -> None:
    tables = read(
        tmp_path, "pp_rank_0.json", {"1": {**WHOLE, "fwd_end": [1.0]}, "2": WHOLE, "3": {**WHOLE, "bwd_end": [1, 1]}}
    )
    assert set(tables["microbatches"]["step"].to_pylist()) == {2}
    assert tables["files"].to_pylist()[0]["status"] == "partial"
    assert ("unreadable_line", 2) in [(r["problem"], r["count"]) for r in tables["quality"].to_pylist()]


def test_impossible_numbers_are_unknown(tmp_path: Path) -> None:
    odd = {**WHOLE, "fwd_minibatch": [10**12, 1], "fwd_chunk": [-1, 0], "bwd_minibatch": ["a", None], "bwd_chunk": 3}
    tables = read(tmp_path, "pp_rank_0.json", {"1": odd, "2": {**WHOLE, "fwd_end": [1e300, 2.0]}, "9" * 30: WHOLE})
    rows = tables["microbatches"].to_pylist()
    assert {r["step"] for r in rows} == {1}
    assert {(r["phase"], r["chunk"]) for r in rows} == {("forward", None), ("backward", None)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_dump_is_read_and_analysed_without_breaking(data: Any) -> None:
    """Random lists under the right names: whatever is told, nothing is raised and parts still sum."""
    number = st.floats(0, 9, allow_nan=False).map(lambda v: round(v, 2))
    lists = st.fixed_dictionaries(
        {},
        optional={f"{mode}_{edge}": st.lists(number, max_size=4) for mode in ("fwd", "bwd", "wgrad") for edge in EDGES}
        | {f"{m}_{w}": st.lists(st.integers(0, 3), max_size=4) for m in ("fwd", "bwd") for w in ("minibatch", "chunk")},
    )
    parts = []
    with TemporaryDirectory() as folder:
        for stage in range(data.draw(st.integers(1, 3))):
            path = Path(folder) / f"pp_rank_{stage}.json"
            path.write_text(json.dumps({"0": {**WHOLE}, **data.draw(st.dictionaries(st.sampled_from("12"), lists))}))
            parts.append(ingest.read(ingest.Source(str(path))))
    work = stage_work(ingest.merge(parts)["microbatches"])
    for row in bubbles(work).to_pylist():
        if row["work_ns"] is not None:
            names = ("work_ns", "schedule_ns", "imbalance_ns", "worker_ns", "variation_ns", "transfer_ns")
            assert sum(row[name] or 0 for name in names) == row["dur_ns"]
    for row in pipeline(work).to_pylist():
        assert row["busy_ns"] + sum(row[f"{p}_idle_ns"] for p in ("warmup", "steady", "cooldown")) == row["dur_ns"]
    stages(pipeline(work)), schedule_work(work)


@pytest.mark.parametrize("text", ['{"1": {"fwd_start": [0.0', '{"1": {"fwd_start": ["a"], "fwd_end": [1]}}'])
def test_nothing_usable_is_one_line(text: str, tmp_path: Path) -> None:
    (row,) = read(tmp_path, "pp_rank_0.json", text)["files"].to_pylist()
    assert row["status"] == "unusable"
    assert "timeline" in row["detail"]


def test_other_json_is_not_taken() -> None:
    assert not pipeline_timeline.sniff(b'{"traceEvents": [{"name": "fwd_start"}]}', "pp_rank_0.json")
    assert not pipeline_timeline.sniff(b'{"1": {"total": 3}}', "pp_rank_0.json")
    assert pipeline_timeline.sniff(b' {"1": {"total": 3, "bwd_start" : [', "x.json")
