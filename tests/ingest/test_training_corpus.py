"""Training logs of real runs: step counts, medians and last values as published beside them."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from diagnose import pipeline

BIG, PRIMUS = "bigscience/experiments", "primus"
MEGATRON = {
    f"{BIG}/gpt2-meg/meg_gpt2_base_n16_dp1_tp4_pp16-1809577.out": (9, 90, 2741.1, [2738.6, 2738.3, 2739.0]),
    f"{BIG}/gpt2-meg/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.out": (20, 200, 1380.6, [1382.1, 1381.7, 1382.2]),
    f"{BIG}/gpt2-meg/meg_gpt2_base_n8_dp1_tp4_pp8-1809562.out": (20, 200, 1617.8, [1618.3, 1616.6, 1617.2]),
    f"{BIG}/gpt2-meg-ds-3d/meg_ds_3d_gpt2_perf_n16-ds-off.out": (62, 62, 126667.2, [126533.1, 128838.5, 125247.8]),
    f"{BIG}/gpt2-meg-ds-zero/meg_ds_zero_gpt2_perf_n16-1999616.out": (4, 4, 128204.4, [128917.0, 128642.7, 127766.0]),
    "megatron-bridge/examples/recipes/llama/out1.txt": (20, 20, 457.0, [448.4, 449.4, 449.2]),
    f"{PRIMUS}/deepseek-v4/develop/progress/p36/runs/triton_off.iter_lines.txt": (10, 10, 525.0, [521.6, 523.8, 526.2]),
    f"{PRIMUS}/deepseek-v4/develop/progress/p36/runs/triton_on.iter_lines.txt": (10, 10, 519.2, [516.7, 517.6, 515.0]),
    f"{PRIMUS}/log.txt": (50, 50, 14962.1, [14961.9, 14961.7, 14947.2]),
    f"{PRIMUS}/ut_out/log.test_megatron_trainer-deepseek_v2_lite.txt": (3, 3, 791.9, [26526.7, 791.9, 495.6]),
    "superbenchmark/tests/data/08327791__megatron_deepspeed.log": (5, 5, 75249.6, [75249.6, 75182.4, 74494.9]),
    "superbenchmark/tests/data/megatron_deepspeed.log": (5, 5, 75249.6, [75249.6, 75182.4, 74494.9]),
}  # fmt: skip
PILOT = f"{PRIMUS}/pilot/pilot/state/runs/real_e2e_plan_graph_demo_baseline/train.log"
CHAT = "deepspeed-examples/applications/DeepSpeed-Chat/training/step1_supervised_finetuning/training_log_output"


def column(path: Path, metric: str) -> list[tuple[int, float]]:
    """(step, value) of a metric in the order of the log."""
    rows = pipeline.read([str(path)])["series"].to_pylist()
    return [(row["step"], row["value"]) for row in rows if row["metric"] == metric]


@pytest.mark.parametrize("name", MEGATRON)
def test_megatron_family(name: str, corpus: Path) -> None:
    count, last_step, middle_ms, last_ms = MEGATRON[name]

    found = column(corpus / name, "step_time_ns")

    assert (len(found), found[-1][0]) == (count, last_step)
    assert median(v for _, v in found) == pytest.approx(middle_ms * 1e6, abs=0.05e6 + 1)
    assert [v for _, v in found[-3:]] == pytest.approx([v * 1e6 for v in last_ms])


def test_doubled_lines_count_once(corpus: Path) -> None:
    tables = pipeline.read([str(corpus / PILOT)])

    found = [row for row in tables["series"].to_pylist() if row["metric"] == "step_time_ns"]
    assert [row["step"] for row in found] == list(range(1, 16)) and {row["rank"] for row in found} == {7}
    assert found[-1]["value"] == pytest.approx(505.7e6)
    assert ("doubled_line", 15) in {(q["problem"], q["count"]) for q in tables["quality"].to_pylist()}


def test_torchtitan(corpus: Path) -> None:
    found = column(corpus / PRIMUS / "ut_out/log.test_torchtitan_trainer-llama3_8B-BF16.txt", "tokens_per_s_per_gpu")

    assert found == [(1, 1340), (2, 33897), (3, 37515)]


def test_deepspeed(corpus: Path) -> None:
    """1,472 mentions of SamplesPerSec are 736 lines: each holds the running and the current rate."""
    path = corpus / CHAT / "opt-1.3b-globalBatchSize128.log"

    rates = column(path, "samples_per_s")

    assert (len(rates), rates[0], rates[-1][0]) == (736, (10, pytest.approx(171.97903593624417)), 7360)
    assert column(path, "memory_allocated_bytes")[0] == (10, pytest.approx(3.96 * 2**30))
    assert column(path, "skipped")[0] == (10, 6)


def test_restarts_of_a_real_log_are_seen(corpus: Path) -> None:
    """Six trainings one after the other in one file, whose step begins at 4 each time."""
    rows = pipeline.read([str(corpus / "deepspeed-examples/random_ltd/vit_finetuning/out/cifar/training.log")])[
        "series"
    ]

    assert sorted(set(rows["segment"].to_pylist())) == list(range(6))


def test_composer(corpus: Path) -> None:
    path = corpus / "llm-foundry" / "2e954d61__logs.txt"

    rates = column(path, "tokens_per_s_per_gpu")

    assert (len(rates), rates[0], rates[-1]) == (26, (11, 17459.1790), (36, pytest.approx(15798.5924)))
    assert column(path, "memory_reserved_bytes")[-1] == (36, pytest.approx(21.0050e9, rel=0.2))


def test_progress_bars_of_four_processes_are_one(corpus: Path) -> None:
    found = column(corpus / BIG / "gpt2-hf-ds" / "hf_ds_gpt2_base_n4-1832555.out", "bar_step_time_ns")

    assert [step for step, _ in found] == list(range(1, 17))
    assert found[0][1] == pytest.approx(58.76e9) and found[4][1] == pytest.approx(59.80e9)


def test_parallel_sizes_of_a_real_log(corpus: Path) -> None:
    tables = pipeline.read([str(corpus / BIG / "gpt2-meg" / "meg_gpt2_base_n16_dp1_tp4_pp16-1809577.out")])

    found = {row["key"]: row["value"] for row in tables["settings"].to_pylist()}
    assert {k: found[f"layout.{k}"] for k in ("tp", "pp", "dp")} == {"tp": "4", "pp": "16", "dp": "1"}
    assert (found["train.global_batch"], found["train.micro_batch"]) == ("4", "1")
