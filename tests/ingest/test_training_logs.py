"""Step lines of training frameworks: steps, values and units as printed, doubles once, restarts apart."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from diagnose import pipeline

MS, S, GIB = 1e6, 1e9, 2.0**30


def read(tmp_path: Path, text: str, name: str = "train.log") -> dict[str, Any]:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return pipeline.read([str(path)])


def values(tables: dict[str, Any]) -> dict[tuple[int, str], list[float]]:
    """(step, metric) -> values in the order printed."""
    found: dict[tuple[int, str], list[float]] = {}
    for row in tables["series"].to_pylist():
        found.setdefault((row["step"], row["metric"]), []).append(row["value"])
    return found


LINES = {
    "megatron": (
        " [2025-12-19 10:49:15] iteration        3/     100 | consumed samples:          128 | elapsed time per iteration"
        " (ms): 20289.1 | throughput per GPU (TFLOP/s/GPU): 431.2 | global batch size:   128 | lm loss: 1.258695E+01 |"
        " load_balancing_loss: 1.329517E+00 | number of nan iterations:   0 |",
        3,
        {"step_time_ns": 20289.1 * MS, "tflop_per_s_per_gpu": 431.2, "loss": 12.58695, "load_balancing_loss": 1.329517},
    ),
    "primus_now_and_average": (
        "[\x1b[32m20260514 15:39:28\x1b[0m][\x1b[36mrank-7/8\x1b[0m]\x1b[1m[DEBUG] : iteration        3/      10 | elapsed"
        " time per iteration (ms): 681.5/700.0 | tokens per GPU (tokens/s/GPU): 6010.3/6000.1 | hip mem usage/free/total/"
        "usage_ratio: 170.92GB/117.07GB/287.98GB/59.35%\x1b[0m",
        3,
        {"step_time_ns": 681.5 * MS, "tokens_per_s_per_gpu": 6010.3, "device_memory_used_bytes": 170.92 * GIB},
    ),
    "deepspeed": (
        "[2023-04-18 01:46:59,171] [INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, "
        "RunningAvgSamplesPerSec=173.4, CurrSamplesPerSec=171.9, MemAllocated=3.96GB, MaxMemAllocated=22.95GB",
        10,
        {"mean_samples_per_s": 173.4, "samples_per_s": 171.9, "memory_allocated_bytes": 3.96 * GIB},
    ),
    "torchtitan": (
        "[titan] 2026-08-21 01:02:03,456 - root - INFO - step: 20  loss: 11.83506  grad_norm:  9.6669  "
        "memory: 48.87GiB(51.44%)  tps: 4,376  tflops: 253.41  mfu: 25.62%",
        20,
        {"loss": 11.83506, "tokens_per_s_per_gpu": 4376, "mfu_ratio": 0.2562,
         "peak_memory_reserved_bytes": 48.87 * GIB},
    ),
    "torchtitan_old": (
        "step:  5  loss:  8.1  memory: 40.50GiB(51.00%)  wps: 2,345  mfu: N/A",
        5,
        {"loss": 8.1, "tokens_per_s_per_gpu": 2345},
    ),
    "nanotron": (
        "08/22 10:11:12 [INFO|DP=0|PP=0|TP=0|node1]: iteration: 5 / 100 | consumed_tokens: 1.05M | "
        "time_per_iteration_ms: 356 | tokens_per_sec: 23.5K | global_batch_size: 8 | lm_loss: 10.1 | eta: 0:10:00",
        5,
        {"step_time_ns": 356 * MS, "tokens_per_s": 23_500, "loss": 10.1, "consumed_tokens": 1_050_000},
    ),
    "nemo": (
        "[default0]:Training epoch 0, iteration 1/19 | lr: 2.999e-07 | global_batch_size: 512 | global_step: 21 | "
        "reduced_train_loss: 11.03 | train_step_timing in s: 7.549 | consumed_samples: 1024",
        21,
        {"step_time_ns": 7.549 * S, "loss": 11.03, "learning_rate": 2.999e-07},
    ),
    "modded_nanogpt": (
        "step:13/6000 train_loss:9.8811 train_time:2049ms step_avg:682.95ms",
        13,
        {"loss": 9.8811, "elapsed_time_ns": 2049 * MS, "mean_step_time_ns": 682.95 * MS},
    ),
    "progress_bar": (" 50%|#####     | 5/10 [00:02<00:02,  2.00it/s, loss=7.5]", 5, {"step_time_ns": 0.5 * S, "loss": 7.5}),
    "megatron_memory": (
        "[Rank 43] (after 2 iterations) memory (MB) | allocated: 15492.84 | max allocated: 20000.5 | reserved: 21000.0"
        " | max reserved: 22000.0",
        2,
        {"memory_allocated_bytes": 15492.84 * 2**20, "peak_memory_reserved_bytes": 22000 * 2**20},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("prefix", ["", "0: ", "[rank3]:", "host-7:  "])
def test_line_of_a_framework(name: str, prefix: str, tmp_path: Path) -> None:
    line, step, expected = LINES[name]

    found = values(read(tmp_path, f"starting\n{prefix}{line}\nbye\n"))

    for metric, value in expected.items():
        assert found[step, metric] == [pytest.approx(value, rel=1e-12)], metric


def test_rank_is_the_one_the_line_names(tmp_path: Path) -> None:
    text = "\n".join(f"[rank{r}]: step: 1  loss: 2.{r}  memory: 1.00GiB(1.00%)  tps: 1,00{r}" for r in range(3))

    rows = read(tmp_path, text)["series"].to_pylist()

    assert {(r["rank"], r["value"]) for r in rows if r["metric"] == "tokens_per_s_per_gpu"} == {
        (0, 1000), (1, 1001), (2, 1002),
    }  # fmt: skip


def megatron(step: int, ms: float, loss: float = 2.5) -> str:
    return f" iteration {step:8d}/     100 | elapsed time per iteration (ms): {ms} | lm loss: {loss:.6E} |"


def test_a_doubled_line_counts_once_and_is_said(tmp_path: Path) -> None:
    lines = [megatron(n, 100.0 + n) for n in range(1, 6) for _ in (0, 1)]

    tables = read(tmp_path, "\n".join(lines))

    assert [v for v in values(tables).values() if len(v) > 1] == []
    assert {(q["problem"], q["count"]) for q in tables["quality"].to_pylist()} >= {("doubled_line", 5)}


def test_a_restart_keeps_both_segments(tmp_path: Path) -> None:
    lines = [megatron(n, 100.0 + n) for n in range(1, 9)] + [megatron(n, 200.0 + n) for n in range(5, 12)]

    rows = [r for r in read(tmp_path, "\n".join(lines))["series"].to_pylist() if r["metric"] == "step_time_ns"]

    assert [r["step"] for r in rows] == [*range(1, 9), *range(5, 12)]
    assert [r["segment"] for r in rows] == [0] * 8 + [1] * 7


def test_a_log_printed_twice_over_is_no_restart(tmp_path: Path) -> None:
    lines = [megatron(n, 100.0 + n * 1.7) for n in range(1, 9)]

    rows = [r for r in read(tmp_path, "\n".join(lines * 2))["series"].to_pylist() if r["metric"] == "step_time_ns"]

    assert [(r["step"], r["segment"]) for r in rows] == [(n, 0) for n in range(1, 9)]


def test_the_same_step_after_a_resumption_is_another_one(tmp_path: Path) -> None:
    text = "step 5 loss nan step_ms inf\nResuming from checkpoint at step 4\nstep 5 loss 2.31 step_ms 500\n"

    rows = [r for r in read(tmp_path, text)["series"].to_pylist() if r["metric"] == "loss"]

    assert [(r["step"], r["segment"]) for r in rows] == [(5, 0), (5, 1)]
    assert math.isnan(rows[0]["value"]) and rows[1]["value"] == 2.31


def test_arguments_become_settings(tmp_path: Path) -> None:
    text = """------------------------ arguments ------------------------
  global_batch_size ............................... 512
  micro_batch_size ................................ 2
  pipeline_model_parallel_size .................... 4
  tensor_model_parallel_size ...................... 8
-------------------- end of arguments ---------------------
""" + megatron(1, 100)

    tables = read(tmp_path, text)

    found = {row["key"]: (row["value"], row["source"]) for row in tables["settings"].to_pylist()}
    source = str(tmp_path / "train.log")
    assert found == {
        "train.global_batch": ("512", source), "train.micro_batch": ("2", source),
        "layout.pp": ("4", source), "layout.tp": ("8", source),
    }  # fmt: skip


def test_transformers_rows_take_the_step_of_the_bar_above(tmp_path: Path) -> None:
    bar = " 10%|#         | {n}/100 [00:10<01:30,  1.00it/s]"
    text = "\r".join(bar.format(n=n) for n in range(1, 11)) + "\n{'loss': '2.31', 'grad_norm': '1.2', 'epoch': '0.1'}\n"

    assert values(read(tmp_path, text))[10, "loss"] == [2.31]


def test_transformers_rows_without_a_step_are_counted_and_that_is_said(tmp_path: Path) -> None:
    text = "{'loss': 2.5, 'grad_norm': nan, 'learning_rate': 5e-05}\n{'loss': 2.4, 'grad_norm': 1.0, 'learning_rate': 4e-05}"

    tables = read(tmp_path, text)

    found = values(tables)
    assert (found[1, "loss"], found[2, "loss"]) == ([2.5], [2.4]) and math.isnan(found[1, "grad_norm"][0])
    assert "step_counted" in tables["quality"]["problem"].to_pylist()


def test_trainer_state(tmp_path: Path) -> None:
    history = [{"epoch": 0.1 * n, "loss": 3 - 0.1 * n, "learning_rate": 1e-4, "step": 10 * n} for n in range(1, 4)]
    state = {"best_model_checkpoint": None, "global_step": 30, "log_history": history, "train_batch_size": 8}

    tables = read(tmp_path, json.dumps(state, indent=2), "trainer_state.json")

    found = values(tables)
    assert [found[10 * n, "loss"] for n in (1, 2, 3)] == [[pytest.approx(3 - 0.1 * n)] for n in (1, 2, 3)]
    assert {r["key"]: r["value"] for r in tables["settings"].to_pylist()}["train.micro_batch"] == "8"


def test_composer_metrics_belong_to_the_batch_above(tmp_path: Path) -> None:
    block = (
        "[batch={n}/100]:\n\t Train loss/train/total: {loss}\n\t Train throughput/device/tokens_per_sec: 17459.1790\n"
    )
    text = "".join(block.format(n=n, loss=10 - n) for n in (11, 12, 13))

    found = values(read(tmp_path, text))

    assert [found[n, "loss"] for n in (11, 12, 13)] == [[10 - n] for n in (11, 12, 13)]
    assert found[12, "tokens_per_s_per_gpu"] == [17459.179]


def test_prose_about_steps_is_no_record(tmp_path: Path) -> None:
    text = megatron(1, 100) + "\nsaving at step 500 took 3.2 s\niteration 7 of the review\nsee step: 4\n"

    assert {row["step"] for row in read(tmp_path, text)["series"].to_pylist()} == {1}


def test_a_record_cut_by_a_block_of_the_reader_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.ingest.text._lines.BLOCK_BYTES", 256)
    text = "\n".join(megatron(n, 100.0 + n) for n in range(1, 101))

    rows = [r for r in read(tmp_path, text)["series"].to_pylist() if r["metric"] == "step_time_ns"]

    assert [(r["step"], r["value"]) for r in rows] == [(n, pytest.approx((100.0 + n) * MS)) for n in range(1, 101)]


def test_timers_below_a_step_line_belong_to_its_step(tmp_path: Path) -> None:
    """Megatron-LM prints the least and the longest rank; the step waits for the longest."""
    dots = "." * 30
    block = (
        " [2025-12-19 10:49:15] iteration {step:8d}/     100 | elapsed time per iteration (ms): 900.0 | lm loss: 1.2E+00 |\n"
        "(min, max) time across ranks (ms):\n"
        f"    forward-backward {dots}: (700.00, {{longest}})\n"
        f"[default3]:    batch-generator {dots}: (1.50, 2.50)\n"
    )
    text = (
        f"    optimizer {dots}: (1.0, 2.0)\n"
        + block.format(step=10, longest=740.0)
        + block.format(step=20, longest=950.0)
    )

    found = values(read(tmp_path, text + "max time across ranks (ms):\n" + f"    all-grads-sync {dots}: 31.25\n"))

    assert found[10, "forward_backward_time_ns"] == [740 * MS] and found[20, "forward_backward_time_ns"] == [950 * MS]
    assert found[20, "input_time_ns"] == [2.5 * MS] and found[20, "all_grads_sync_time_ns"] == [31.25 * MS]
    assert not [key for key in found if key[1] == "optimizer_time_ns"], (
        "printed before any step: whose it is, is unknown"
    )
    assert found[10, "step_time_ns"] == [900 * MS]


def test_deepspeeds_timers_and_memory(tmp_path: Path) -> None:
    stamp = "[2023-04-18 01:46:{second:02d},171] [INFO]"
    block = (
        f"{stamp} [utils.py:786:see_memory_usage] MA {{used}} GB         Max_MA 6.02 GB         CA 9.12 GB         Max_CA 9 GB \n"
        f"{stamp} [logging.py:96:log_dist] [Rank 0] step={{step}}, skipped=0, lr=[9.6e-06], mom=[(0.9, 0.95)]\n"
        f"{stamp} [logging.py:96:log_dist] [Rank 0] time (ms) | fwd_microstep: 54.76 | bwd_allreduce_microstep: 103.64\n"
    )
    text = "".join(block.format(second=step, step=step, used=3.5 + step) for step in (1, 2, 3))

    tables = read(tmp_path, text)

    found = values(tables)
    assert found[2, "fwd_microstep_time_ns"] == [54.76 * MS]
    assert found[1, "memory_allocated_bytes"] == [5.5 * GIB] and found[2, "memory_allocated_bytes"] == [6.5 * GIB]
    assert found[1, "peak_memory_reserved_bytes"] == [9 * GIB] and found[1, "memory_reserved_bytes"] == [9.12 * GIB]
    assert [row["ts_ns"] % 60_000_000_000 for row in tables["step_ends"].to_pylist()] == [
        1_171_000_000, 2_171_000_000, 3_171_000_000,
    ]  # fmt: skip
