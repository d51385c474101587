"""The law for settings: which settings tell stages and micro-batches, and which leave them open."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.analyses.bubbles import bubbles
from tests.rules.build import table

MEGATRON = {"layout.pp": 8, "layout.dp": 2, "train.micro_batch": 1, "train.global_batch": 64}


def row(given: dict[str, Any], **tables: Any) -> Any:
    settings = table("settings", [{"key": k, "value": str(v), "source": "train.log"} for k, v in given.items()])
    rows = bubbles(settings=settings, **tables).to_pylist()
    return rows[0] if rows else None


@pytest.mark.parametrize(
    ("given", "stages", "microbatches", "chunks", "schedule", "law"),
    [
        (MEGATRON, 8, 32, 1, "1f1b", 7 / 39),
        ({"layout.pp": 8, "pipeline.microbatches": 32}, 8, 32, 1, "1f1b", 7 / 39),
        (MEGATRON | {"layout.vpp": 2}, 8, 32, 2, "interleaved", 7 / 71),
        (MEGATRON | {"pipeline.layers_per_chunk": 2, "model.layers": 64}, 8, 32, 4, "interleaved", 7 / 135),
        (MEGATRON | {"layout.schedule": "gpipe"}, 8, 32, 1, "gpipe", 7 / 39),
        (MEGATRON | {"layout.schedule": "zb1p"}, 8, 32, 1, "zb1p", (7 / 96) / (1 + 7 / 96)),
        (
            {"layout.pp": 4, "layout.tp": 4, "cluster.world_size": 32, "train.micro_batch": 2}
            | {"train.global_batch": 16},
            4, 4, 1, "1f1b", 3 / 7,
        ),
    ],
)  # fmt: skip
def test_settings_that_tell(
    given: dict[str, Any], stages: int, microbatches: int, chunks: int, schedule: str, law: float
) -> None:
    found = row(given)
    assert (found["stages_count"], found["microbatches_count"], found["chunks_count"]) == (stages, microbatches, chunks)
    assert found["schedule"] == schedule
    assert found["law_ratio"] == pytest.approx(law)
    assert not found["measured"]
    assert found["dur_ns"] is None
    assert found["idle_ratio"] is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"layout.pp": 8},
        {"layout.pp": 8, "train.global_batch": 64, "layout.dp": 2},
        MEGATRON | {"train.global_batch": 63},
        {"pipeline.microbatches": 8},
        MEGATRON | {"pipeline.schedule": "DualPipeV"},
        MEGATRON | {"layout.pp": "auto"},
    ],
)
def test_settings_that_leave_it_open(given: dict[str, Any]) -> None:
    assert row(given) is None


def test_the_step_comes_from_a_log_before_traces() -> None:
    spans = table("spans", [{"rank": r, "step": 1, "mean_ns": 10 + r} for r in range(3)])
    trends = table("trends", [{"metric": "step", "timed": True, "whole_mean": 99.0}])
    assert row(MEGATRON, spans=spans)["dur_ns"] == 12
    assert row(MEGATRON, spans=spans, trends=trends)["dur_ns"] == 99
    whole = table("spans", [{"rank": 0, "step": None, "mean_ns": 10}])
    assert row(MEGATRON, spans=whole)["dur_ns"] is None, "a recording is no step"


def test_one_stage_is_no_pipeline() -> None:
    found = row({"layout.pp": 1})
    assert (found["stages_count"], found["law_ratio"]) == (1, 0.0)


def test_settings_that_disagree_say_nothing_unless_one_is_given() -> None:
    rows = [
        {"key": "layout.pp", "value": "4", "source": "a.log"}, {"key": "layout.pp", "value": "8", "source": "b.log"},
        {"key": "pipeline.microbatches", "value": "8", "source": "a.log"},
    ]  # fmt: skip
    assert bubbles(settings=table("settings", rows)).num_rows == 0
    given = [*rows, {"key": "layout.pp", "value": "2", "source": "job.toml"}]
    files = table("files", [{"path": "job.toml", "kind": "job"}, {"path": "a.log", "kind": "text"}])
    (found,) = bubbles(settings=table("settings", given), files=files).to_pylist()
    assert (found["stages_count"], found["law_ratio"]) == (2, pytest.approx(1 / 9))
