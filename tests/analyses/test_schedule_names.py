"""Orders that are not one of the known schedules are called unknown, and no law is stated for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnose import ingest
from diagnose.analyses.bubbles import bubbles
from diagnose.analyses.stage_work import stage_work
from fixtures.simulate import pipelines
from fixtures.simulate.pipelines import Pipeline
from tests.rules import build


def rows_of(folder: Path) -> Any:
    parts = [ingest.read(ingest.Source(str(path))) for path in sorted(folder.iterdir())]
    return bubbles(stage_work(ingest.merge(parts)["microbatches"])).to_pylist()


def change(folder: Path, edit: Any) -> None:
    for path in folder.iterdir():
        dump = json.loads(path.read_text())
        for lists in dump.values():
            edit(lists)
        path.write_text(json.dumps(dump))


def without_numbers(lists: Any) -> None:
    for key in [key for key in lists if key.endswith(("minibatch", "chunk"))]:
        del lists[key]


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(4, 8, 2), (2, 8, 3), (4, 4, 2), (8, 16, 4)])
def test_interleaved_work_without_numbers_is_told_by_its_order(
    stages: int, microbatches: int, chunks: int, tmp_path: Path
) -> None:
    pipelines.timelines(Pipeline("interleaved", stages, microbatches, chunks), tmp_path, 1)
    (numbered,) = rows_of(tmp_path)
    change(tmp_path, without_numbers)
    (row,) = rows_of(tmp_path)

    assert row == numbered
    assert (row["schedule"], row["microbatches_count"], row["chunks_count"]) == ("interleaved", microbatches, chunks)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_one_chunk_a_stage_is_not_taken_for_several(schedule: str, tmp_path: Path) -> None:
    for stages, microbatches in ((2, 4), (4, 8), (4, 3), (3, 12)):
        pipelines.timelines(
            Pipeline(schedule, stages, microbatches), tmp_path, 1, f"{stages}-{microbatches}-stage{{}}.json"
        )
        parts = [ingest.read(ingest.Source(str(p))) for p in sorted(tmp_path.glob(f"{stages}-{microbatches}-*"))]
        assert set(stage_work(ingest.merge(parts)["microbatches"])["chunk"].to_pylist()) == {None}


def test_a_stage_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    paths = pipelines.timelines(Pipeline("1f1b", 4, 8), tmp_path, 1)
    paths[-1].unlink()
    (row,) = rows_of(tmp_path)

    assert row["schedule"] == "unknown"
    assert row["law_ns"] is None


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("missing", [1, 3])
def test_a_pipeline_with_a_stage_missing_is_not_replayed(schedule: str, missing: int, tmp_path: Path) -> None:
    """Few micro-batches: without the last stage, 1F1B looks like GPipe of one stage less, but for its waiting."""
    paths = pipelines.timelines(Pipeline(schedule, 4, 3), tmp_path, 1)
    expected = (
        {} if missing == 3 else {"groups": build.table("groups", [{"size": 4, "ranks": [0, 1, 2, 3], "dim": "pp"}])}
    )
    paths[missing].unlink()
    parts = [ingest.read(ingest.Source(str(path))) for path in sorted(tmp_path.iterdir())]
    (row,) = bubbles(stage_work(ingest.merge(parts)["microbatches"]), **expected).to_pylist()

    assert (row["schedule"], row["bubble_ns"], row["bubble_ratio"], row["law_ns"]) == ("unknown", None, None, None)
    assert row["measured"]


def test_two_backwards_in_a_row_are_not_1f1b(tmp_path: Path) -> None:
    pipelines.timelines(Pipeline("1f1b", 2, 8), tmp_path, 1)

    def swap(lists: Any) -> None:
        for edge in ("start", "end"):
            forward, backward = lists[f"fwd_{edge}"], lists[f"bwd_{edge}"]
            forward[4], backward[3] = backward[3], forward[4]

    change(tmp_path, swap)
    (row,) = rows_of(tmp_path)
    assert row["schedule"] == "unknown"


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_one_micro_batch_is_one_order(schedule: str, tmp_path: Path) -> None:
    pipelines.timelines(Pipeline(schedule, 4, 1), tmp_path, 1)
    (row,) = rows_of(tmp_path)

    assert row["schedule"] == "1f1b"
    assert row["law_ratio"] == pytest.approx(0.75)


def test_evaluation_has_no_backward_and_no_row(tmp_path: Path) -> None:
    pipelines.timelines(Pipeline("1f1b", 4, 8), tmp_path, 1)
    change(tmp_path, lambda lists: lists.update(bwd_start=[], bwd_end=[]))
    assert rows_of(tmp_path) == []
