"""JSON descriptions of a job: known names wherever they stand, another job's kept apart, other JSON left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnose import ingest
from diagnose.ingest import job_config


def settings(given: Any, folder: Path) -> dict[str, str]:
    path = folder / "config.json"
    path.write_text(json.dumps(given))
    return {row["key"]: row["value"] for row in ingest.read(ingest.Source(str(path)))["settings"].to_pylist()}


def test_names_of_several_frameworks_mean_one_thing(tmp_path: Path) -> None:
    given = {
        "pipeline_model_parallel_size": 8, "tensor-model-parallel-size": 4, "num_microbatches": 32,
        "recompute_granularity": "full", "trainer": {"global_batch_size": 256}, "note": "second try",
        "pipeline_parallel_schedule": "Interleaved1F1B",
    }  # fmt: skip
    assert settings(given, tmp_path) == {
        "layout.pp": "8", "layout.tp": "4", "pipeline.microbatches": "32", "train.recompute": "full",
        "train.global_batch": "256", "note": "second try", "layout.schedule": "interleaved",
    }  # fmt: skip


def test_a_value_of_another_kind_says_nothing(tmp_path: Path) -> None:
    given = {
        "pp": 8,
        "tp": 2,
        "train_batch_size": "auto",
        "recompute": "block",
        "dp": True,
        "pipeline_schedule": "mine",
    }
    assert settings(given, tmp_path) == {
        "layout.pp": "8", "layout.tp": "2", "train_batch_size": "auto", "recompute": "block", "dp": "true",
        "pipeline_schedule": "mine",
    }  # fmt: skip
    assert settings({"pp": 8, "tp": 2, "recompute": None}, tmp_path)["train.recompute"] == "none"


@pytest.mark.parametrize("other", ["reference", "baseline", "published_run"])
def test_another_job_keeps_its_name(other: str, tmp_path: Path) -> None:
    found = settings({"tp": 8, "pp": 8, other: {"tp": 8, "pp": 2}}, tmp_path)
    assert found == {"layout.tp": "8", "layout.pp": "8", "reference.layout.tp": "8", "reference.layout.pp": "2"}


@pytest.mark.parametrize(
    "given",
    [
        {"hidden_size": 4096, "num_hidden_layers": 32, "architectures": ["Llama"]},
        {"tp": 8},
        {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"},
        [{"tp": 8, "pp": 8}],
        {"step": 1, "loss": 3.2},
        {"traceEvents": [], "tp": 1, "pp": 2},
    ],
)
def test_other_json_is_not_taken(given: Any) -> None:
    assert not job_config.sniff(json.dumps(given).encode(), "config.json")


def test_records_per_step_are_not_taken() -> None:
    lines = b'{"step": 1, "tp": 8, "pp": 2}\n{"step": 2, "tp": 8, "pp": 2}\n'
    assert not job_config.sniff(lines, "steps.jsonl")
