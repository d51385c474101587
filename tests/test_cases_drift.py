"""Slow-downs over steps and step lines that users reported in public, and the right answers; also told in other ways.

A variant renames ranks and metrics, moves and scales steps and times, shuffles lines, or adds noise.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import ask

MS = 1_000_000


class Variant(NamedTuple):
    """How step records are told in another way, and how the answer moves with it."""

    name: str
    scale: float = 1.0
    first_step: int = 0
    renamed: bool = False
    shuffled: bool = False
    noise: float = 0.0
    seconds: bool = False

    def rank(self, rank: int, world_size: int) -> int:
        return world_size - 1 - rank if self.renamed else rank

    def step(self, step: int) -> int:
        return step + self.first_step

    def ns(self, ms: float) -> Any:
        return pytest.approx(ms * MS * self.scale, rel=3 * self.noise + 1e-6)


VARIANTS = (
    Variant("original"),
    Variant("renamed", renamed=True),
    Variant("later", first_step=40_000),
    Variant("slower", scale=3.7),
    Variant("shuffled", shuffled=True),
    Variant("seconds", seconds=True),
    Variant("noisy", noise=0.004),
    Variant("all_at_once", scale=0.6, first_step=1_000, renamed=True, shuffled=True, noise=0.002, seconds=True),
)
each = pytest.mark.parametrize("variant", VARIANTS, ids=[v.name for v in VARIANTS])


def told(case: str, folder: Path, variant: Variant, change: Callable[[dict[str, Any]], None] | None = None) -> Any:
    """The diagnosis of a case's step records as the variant writes them."""
    rng = random.Random(5)
    rows = [json.loads(line) for line in (ask.CASES / case / "steps.jsonl").read_text().splitlines()]
    world_size = 1 + max(row["rank"] for row in rows)
    jitter: dict[int, float] = {}
    for row in rows:
        factor = variant.scale * jitter.setdefault(row["step"], 1 + variant.noise * rng.gauss(0, 1))
        for name in [name for name in row if name.endswith("_ms")]:
            row[name] *= factor
        row["rank"], row["step"] = variant.rank(row["rank"], world_size), variant.step(row["step"])
        if change:
            change(row)
    if variant.seconds:
        rows = [{(k[:-3] + "_s" if k.endswith("_ms") else k): (v / 1e3 if k.endswith("_ms") else v)
                 for k, v in row.items()} for row in rows]  # fmt: skip
    if variant.shuffled:
        rng.shuffle(rows)
    path = folder / "steps.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ask.run(path)


def usual_ns(diagnosis: Any) -> float:
    """The job's steady step."""
    return next(row["early"] for row in ask.rows(diagnosis, "trends", metric="step"))


@each
def test_d01_garbage_collection_at_different_steps_on_every_rank(variant: Variant, tmp_path: Path) -> None:
    diagnosis = told("D01", tmp_path, variant)

    found = ask.finding(diagnosis, "gc-pauses")
    assert found.lost_ns == variant.ns(25 * 180 / 200) and found.ranks == (0, 1, 2, 3)
    assert 31 <= found.evidence["period_count"] <= 34
    assert "gc.disable" in found.fix and "same step on all ranks" in found.fix
    assert not {"rank-turned-slow", "late-rank", "throughput-drift", "step-change", "periodic-stall"} & set(
        ask.found(diagnosis)
    )


@each
def test_d05_one_gpu_slows_at_a_step(variant: Variant, tmp_path: Path) -> None:
    diagnosis = told("D05", tmp_path, variant)

    slow = ask.finding(diagnosis, "rank-turned-slow")
    assert (slow.ranks, slow.evidence["part"]) == ((variant.rank(5, 8),), "compute")
    assert slow.evidence["from_step"] == variant.step(50)
    assert slow.evidence["part_grown_ns"] == pytest.approx(105 * MS * variant.scale, rel=0.05)
    clocks = ask.finding(diagnosis, "throttled-clocks")
    assert clocks.ranks == slow.ranks and "1,980 MHz to 1,410 MHz" in clocks.summary
    assert ask.finding(diagnosis, "step-change").evidence["from_step"] == variant.step(50)
    assert "link-turned-slow" not in ask.found(diagnosis)


@each
def test_d05_without_clocks_the_reason_stays_open(variant: Variant, tmp_path: Path) -> None:
    def forget(row: dict[str, Any]) -> None:
        del row["sm_clock_mhz"], row["gpu_temp_c"]

    diagnosis = told("D05", tmp_path, variant, forget)

    slow = ask.finding(diagnosis, "rank-turned-slow")
    assert slow.ranks == (variant.rank(5, 8),)
    assert "clocks are likely" in slow.summary and "collect GPU clocks" in slow.summary
    assert slow.confidence_ratio <= 0.8 and "throttled-clocks" not in ask.found(diagnosis)


@each
def test_d06_checkpoints_are_stalls_and_no_drift(variant: Variant, tmp_path: Path) -> None:
    diagnosis = told("D06", tmp_path, variant)

    found = ask.finding(diagnosis, "periodic-stall")
    assert found.evidence["stalls_count"] == 3 and found.evidence["period_count"] == 40
    assert found.evidence["total_ns"] == variant.ns(1_080_000)
    assert found.steps == tuple(variant.step(step) for step in (40, 80, 120))
    assert usual_ns(diagnosis) == variant.ns(1400)
    assert not {"throughput-drift", "step-change"} & set(ask.found(diagnosis))


@each
def test_d14_input_that_grows_is_all_of_the_growth(variant: Variant, tmp_path: Path) -> None:
    diagnosis = told("D14", tmp_path, variant)

    found = ask.finding(diagnosis, "input-drift")
    assert found.evidence["slope_ns"] == pytest.approx(0.5 * MS * variant.scale, rel=0.03)
    assert found.evidence["explained_ratio"] == pytest.approx(1, abs=0.05)
    assert ask.finding(diagnosis, "throughput-drift").evidence["change_ratio"] == pytest.approx(0.5056, rel=0.05)
    assert set(ask.found(diagnosis)) == {"input-drift", "throughput-drift"}


@each
def test_d15_compilation_and_one_recompilation_are_no_drift(variant: Variant, tmp_path: Path) -> None:
    diagnosis = told("D15", tmp_path, variant)

    assert usual_ns(diagnosis) == variant.ns(500)
    kinds = {(row["step"], row["kind"]) for row in ask.rows(diagnosis, "stalls")}
    assert kinds == {(variant.step(1), "warm_up"), (variant.step(101), "single")}
    assert ask.found(diagnosis) == []
    answer = ask.symptom(diagnosis, "drifting_throughput")
    assert answer.status == "unknown" and "198 steps" in answer.reason, "199 steps say nothing about thousands"


def test_sizes_printed_in_a_log_say_where_they_were_read(tmp_path: Path) -> None:
    text = "  tensor_model_parallel_size ..... 8\n iteration 1/ 9 | elapsed time per iteration (ms): 9.0 |\n"
    (tmp_path / "train.log").write_text(text)

    layout = ask.run(tmp_path / "train.log").job["layout"]

    assert layout["tp"] == {"value": 8, "source": "read from train.log"}
    assert layout["pp"] == {"value": None, "source": "unknown"}


def series(diagnosis: Any) -> dict[tuple[int, str], list[float]]:
    """(step, metric) -> values."""
    found: dict[tuple[int, str], list[float]] = {}
    for row in ask.rows(diagnosis, "series"):
        found.setdefault((row["step"], row["metric"]), []).append(row["value"])
    return found


PREFIXES = ("", "[rank0]:", "[default3]:", "0: ")


def logged(case: str, folder: Path, prefix: str) -> Any:
    text = (ask.CASES / case / "train.log").read_text("utf-8")
    path = folder / "train.log"
    path.write_text(
        "".join(prefix + line for line in text.splitlines(keepends=True) if line.strip()), "utf-8", newline=""
    )
    return ask.run(path)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_g06_redrawn_bars_and_records_glued_behind_them(prefix: str, tmp_path: Path) -> None:
    diagnosis = logged("G06", tmp_path, prefix)

    found = series(diagnosis)
    assert found[1, "step_time_ns"] == [1010.5e9] and found[2, "step_time_ns"] == [1044.25e9]
    (flushes,) = ask.rows(diagnosis, "log_events", kind="allocator_flushes")
    assert flushes["count"] == 27 and "1 warning" in flushes["detail"]


@pytest.mark.parametrize("lost_escape", [False, True])
def test_g07_colours_between_label_and_value(lost_escape: bool, tmp_path: Path) -> None:
    text = (ask.CASES / "G07" / "train.log").read_text("utf-8")
    path = tmp_path / "train.log"
    path.write_text(text.replace("\x1b", "") if lost_escape else text, "utf-8")

    diagnosis = ask.run(path)

    found = series(diagnosis)
    assert (found[10, "tokens_per_s_per_gpu"], found[10, "mfu_ratio"]) == ([2345], [pytest.approx(0.485)])
    assert found[10, "loss"] == [8.1234] and found[10, "peak_memory_reserved_bytes"] == [pytest.approx(47.61 * 2**30)]
    assert "\x1b" not in diagnosis.to_json() and "\\u001b" not in diagnosis.to_json()


def test_g17_step_lines_of_every_framework(tmp_path: Path) -> None:
    found = series(logged("G17", tmp_path, ""))

    assert found[10, "tokens_per_s_per_gpu"] == [2345]
    assert found[6, "step_time_ns"] == [320.5 * MS] and found[6, "samples_per_s"] == [798.752]
    assert found[21, "step_time_ns"] == [13.5e9]
    assert found[5, "bar_step_time_ns"] == [0.5e9], (
        "2.00it/s; where a framework prints its time, the bar's is kept apart"
    )
    assert found[50, "samples_per_s"] == [8.59]
    assert found[5, "step_time_ns"] == [float("inf"), 500 * MS], "both sides of a resumption stay"
