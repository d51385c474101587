"""A training log beside samples of the GPUs: the GPU whose clock fell is named; GPUs that only wait are not."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ask

STEPS, SLOW_FROM, GPUS, EVERY_S = 2400, 1400, 8, 5.0
HOT = 3


def clock(seconds: float, form: str) -> str:
    start = dt.datetime(2026, 1, 15, 22, 0, 0)
    return (start + dt.timedelta(seconds=float(seconds))).strftime(form)


def times(slower: float) -> np.ndarray:
    noise = np.random.default_rng(5).standard_t(4, STEPS) * 0.004
    return (1.0 + noise) * np.where(np.arange(STEPS) >= SLOW_FROM, slower, 1.0)


def megatron(step_s: np.ndarray) -> str:
    ends = np.cumsum(step_s)
    return "world_size ........ 8\n" + "".join(
        f" [{clock(end, '%Y-%m-%d %H:%M:%S')}] iteration {n + 1:8d}/ {STEPS} | consumed samples: {n * 8} | "
        f"elapsed time per iteration (ms): {1e3 * took:.1f} | global batch size: 8 | lm loss: 2.5E+00 |\n"
        for n, (took, end) in enumerate(zip(step_s.tolist(), ends.tolist(), strict=True))
    )


def smi(step_s: np.ndarray, fall: dict[int, float], reason: int) -> str:
    """Every 5 s a line per GPU; from the slow step on the clocks of some are lower."""
    ends = np.cumsum(step_s)
    head = "timestamp, index, clocks.current.sm [MHz], temperature.gpu, clocks_throttle_reasons.active\n"
    lines = []
    for at in np.arange(-60.0, ends[-1] + 60.0, EVERY_S):
        slow = SLOW_FROM <= np.searchsorted(ends, at) < STEPS
        for gpu in range(GPUS):
            down = slow and gpu in fall
            mhz = 1980 * (fall[gpu] if down else 1.0)
            lines.append(
                f"{clock(at, '%Y/%m/%d %H:%M:%S.%f')}, {gpu}, {mhz:.0f} MHz, {89 if down else 60}, "
                f"0x{(reason if down else 0):016x}\n"
            )
    return head + "".join(lines)


def diagnose(tmp_path: Path, slower: float, fall: dict[int, float], reason: int, log: str | None = None) -> Any:
    step_s = times(slower)
    (tmp_path / "train.log").write_text(megatron(step_s) if log is None else log)
    (tmp_path / "smi.csv").write_text(smi(step_s, fall, reason))
    return ask.run(tmp_path)


def test_the_hot_gpu_is_named_with_its_rank_and_reason(tmp_path: Path) -> None:
    found = ask.finding(diagnose(tmp_path, 1.25, {HOT: 1 / 1.25}, 0x20), "throttled-clocks")

    assert found.ranks == (HOT,) and abs(found.evidence["from_step"] - SLOW_FROM) <= 8
    assert found.evidence["early_mhz"] == 1980 and found.evidence["late_mhz"] == 1584
    assert "too hot, 89 C" in found.summary


def test_without_the_number_of_ranks_the_gpu_itself_is_named(tmp_path: Path) -> None:
    log = megatron(times(1.25)).split("\n", 1)[1]

    found = ask.finding(diagnose(tmp_path, 1.25, {HOT: 1 / 1.25}, 0x20, log), "throttled-clocks")

    assert found.ranks == () and "GPU 3: SM clock" in found.summary


@pytest.mark.parametrize(
    ("fall", "reason", "why"),
    [
        (dict.fromkeys(range(GPUS), 0.8), 0x1, "all idle more: they wait"),
        (dict.fromkeys(range(GPUS), 0.8), 0x0, "all alike and no reason given: they may follow the load"),
        ({HOT: 0.95}, 0x20, "a fall of 5 % cannot make the step 25 % longer"),
        ({}, 0x0, "no clock fell"),
    ],
)
def test_clocks_that_do_not_explain_it_are_not_blamed(
    tmp_path: Path, fall: dict[int, float], reason: int, why: str
) -> None:
    diagnosis = diagnose(tmp_path, 1.25, fall, reason)

    assert ask.found(diagnosis) == ["step-change"], why


def test_all_gpus_throttled_by_power_are_blamed(tmp_path: Path) -> None:
    found = ask.finding(diagnose(tmp_path, 1.25, dict.fromkeys(range(GPUS), 0.8), 0x4), "throttled-clocks")

    assert "power limit or brake" in found.summary


def test_a_level_run_with_one_slower_gpu_is_quiet(tmp_path: Path) -> None:
    assert ask.found(diagnose(tmp_path, 1.0, {HOT: 0.97}, 0x0)) == []


def test_clocks_of_other_kinds_are_not_joined(tmp_path: Path) -> None:
    """Records in UTC beside samples in local time of an unknown zone: hours may lie between them."""
    step_s = times(1.25)
    start = dt.datetime(2026, 1, 15, 22, tzinfo=dt.UTC).timestamp()
    rows = [{"_step": n, "_timestamp": start + end, "loss": 2.5} for n, end in enumerate(np.cumsum(step_s).tolist())]
    log = "".join(json.dumps(row) + "\n" for row in rows)

    diagnosis = diagnose(tmp_path, 1.25, {HOT: 0.8}, 0x20, log)

    assert ask.found(diagnosis) == ["step-change"], "steps are timed by when they were logged"
    assert ask.rows(diagnosis, "device_series") == []
    said = [row["detail"] for row in diagnosis.quality if row["problem"] == "unjoined_sample"]
    assert len(said) == 1 and "hours may lie between them" in said[0]


def test_sampled_memory_is_memory_in_use(tmp_path: Path) -> None:
    step_s = times(1.0)
    ends = np.cumsum(step_s)
    lines = [
        f"{clock(at, '%Y/%m/%d %H:%M:%S.%f')}, {gpu}, {40_000 + 100 * gpu} MiB, 81559 MiB\n"
        for at in np.arange(0.0, ends[-1], EVERY_S)
        for gpu in range(GPUS)
    ]
    (tmp_path / "train.log").write_text(megatron(step_s))
    (tmp_path / "smi.csv").write_text("timestamp, index, memory.used [MiB], memory.total [MiB]\n" + "".join(lines))

    memory = ask.run(tmp_path).tables["memory"].to_pylist()

    held = {row["rank"]: row["used_bytes"] for row in memory}
    assert held == {gpu: (40_000 + 100 * gpu) << 20 for gpu in range(GPUS)}
