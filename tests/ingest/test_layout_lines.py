"""Sentences about the layout that frameworks print at start, and the ones that only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose import ingest

TITAN = "[rank0]:[titan] 2026-05-24 19:50:34,279 - root - INFO - "
DEEPSPEED = "[2024-04-08 07:26:15,656] [INFO] "


def settings(text: str, folder: Path) -> dict[str, str]:
    path = folder / "train.log"
    path.write_text(text)
    return {row["key"]: row["value"] for row in ingest.read(ingest.Source(str(path)))["settings"].to_pylist()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("setting number of micro-batches to constant 4\n", {"pipeline.microbatches": "4"}),
        ("vm-07-05: setting number of microbatches to constant 64\n", {"pipeline.microbatches": "64"}),
        (
            "  num_layers_per_virtual_pipeline_stage ........... 2\n  num_layers ...................... 32\n",
            {"pipeline.layers_per_chunk": "2", "model.layers": "32"},
        ),
        ("  recompute_granularity ........................... full\n", {"train.recompute": "full"}),
        ("  checkpoint_activations .......................... True\n", {"train.recompute": "full"}),
        ("  num_virtual_stages_per_pipeline_rank ............ 4\n", {"layout.vpp": "4"}),
        (
            f"{TITAN}Building device mesh with parallelism: pp=4, dp_replicate=2, dp_shard=8, cp=1, tp=2, ep=1\n",
            {"layout.pp": "4", "layout.dp": "16", "layout.cp": "1", "layout.tp": "2", "layout.ep": "1"},
        ),
        (
            f"{TITAN}Building 3-D device mesh with ['pp', 'dp_shard', 'tp'], [2, 4, 8]\n",
            {"layout.pp": "2", "layout.dp": "4", "layout.cp": "1", "layout.tp": "8"},
        ),
        (
            f"{TITAN}Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=2, cp=1, tp=1, ep=1\n"
            f"{TITAN}Using pipeline schedule Interleaved1F1B with 8 microbatches and 4 stages.\n",
            {"layout.pp": "2", "layout.dp": "2", "layout.cp": "1", "layout.tp": "1", "layout.ep": "1",
             "layout.schedule": "interleaved", "pipeline.microbatches": "8", "layout.vpp": "2"},
        ),
        (f"{TITAN}Using pipeline schedule 1F1B\n", {"layout.schedule": "1f1b"}),
        (
            f"{TITAN}Using pipeline schedule DualPipeV with 8 microbatches and 4 stages.\n",
            {"pipeline.schedule": "DualPipeV", "pipeline.microbatches": "8", "layout.pp": "4"},
        ),
        (
            f"{TITAN}Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1\n"
            f"{TITAN}Trainer is initialized with local batch size 4, global batch size 32, "
            "gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)\n",
            {"layout.pp": "1", "layout.dp": "8", "layout.cp": "1", "layout.tp": "1", "train.global_batch": "32",
             "train.micro_batch": "4", "model.seq_len": "2048"},
        ),
        (
            f"{DEEPSPEED}[topology.py:1] Using topology: {{ProcessCoord(pipe=0, data=0, model=0): 0, "
            "ProcessCoord(pipe=0, data=1, model=0): 1, ProcessCoord(pipe=1, data=0, model=0): 2, "
            "ProcessCoord(pipe=1, data=1, model=0): 3}\n",
            {"layout.pp": "2", "layout.dp": "2", "layout.tp": "1"},
        ),
        (
            f"{DEEPSPEED}[engine.py:82:__init__] CONFIG: micro_batches=8 micro_batch_size=2\n",
            {"pipeline.microbatches": "8", "train.micro_batch": "2"},
        ),
        (
            f"{DEEPSPEED}[config.py:1000:print]   train_batch_size ............. 1024\n"
            f"{DEEPSPEED}[config.py:1000:print]   train_micro_batch_size_per_gpu  4\n",
            {"train.global_batch": "1024"},
        ),
    ],
    ids=lambda value: value[-40:].strip() if isinstance(value, str) else "",
)  # fmt: skip
def test_what_frameworks_print(text: str, expected: dict[str, str], tmp_path: Path) -> None:
    assert settings(text, tmp_path) == expected


def test_the_last_word_counts(tmp_path: Path) -> None:
    text = "setting number of micro-batches to constant 4\nsetting number of micro-batches to constant 8\n"
    assert settings(text, tmp_path) == {"pipeline.microbatches": "8"}
