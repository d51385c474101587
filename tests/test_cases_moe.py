"""Troubles with mixtures of experts that users reported in public, and the right answers; also told in other ways."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ask, perturb
from tests.perturb import Variant

VARIANTS = (perturb.ORIGINAL, perturb.RENUMBERED, perturb.ALL_AT_ONCE)
each_trace = pytest.mark.parametrize("variant", VARIANTS, ids=perturb.names(VARIANTS))
Record = dict[str, Any]


def _renamed(record: Record) -> Record:
    names = {
        "tokens_per_expert": "expert_counts",
        "top_k": "moe_router_topk",
        "step": "iteration",
        "layer": "layer_idx",
    }
    return {names.get(key, key): value for key, value in record.items()}


def _doubled(record: Record) -> Record:
    scaled = {"tokens", "tokens_per_expert"}
    return {k: ([2 * v for v in x] if isinstance(x, list) else 2 * x) if k in scaled else x for k, x in record.items()}


def _as_objects(record: Record) -> Record:
    counts = {f"expert_{n}": v for n, v in enumerate(record["tokens_per_expert"])}
    return {k: v for k, v in record.items() if k != "tokens_per_expert"} | {"tokens_per_expert": counts}


def _nested_later(record: Record) -> Record:
    inner = {k: record[k] for k in record if k not in ("step", "ep_size")}
    outer = {k: record[k] for k in record if k in ("step", "ep_size")}
    return {"moe": [inner], "loss": 2.5} | outer | {"step": record["step"] + 7_000}


TELLINGS: dict[str, Callable[[Record], Record]] = {
    "original": dict, "renamed": _renamed, "doubled": _doubled, "objects": _as_objects, "nested": _nested_later,
}  # fmt: skip
each_telling = pytest.mark.parametrize("telling", TELLINGS)


def told(case: str, folder: Path, telling: str) -> Any:
    """The diagnosis of a case's router records, told in another way."""
    lines = (ask.CASES / case / "steps.jsonl").read_text().splitlines()
    rows = [TELLINGS[telling](json.loads(line)) for line in lines]
    path = folder / "steps.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ask.run(path)


@each_telling
def test_f01_drops_are_told_from_counts_before_and_after_the_cut(telling: str, tmp_path: Path) -> None:
    diagnosis = told("F01", tmp_path, telling)
    size = 2 if telling == "doubled" else 1
    before, after = ask.rows(diagnosis, "router_load")
    assert (before["counted"], after["counted"]) == ("routed", "kept")
    for row in (before, after):
        assert (row["capacity_count"], row["dropped_count"]) == (2560 * size, 4880 * size)
        assert row["assigned_count"] == 16384 * size
        assert round(100 * row["drop_ratio"], 2) == 29.79
    assert before["imbalance_ratio"] == pytest.approx(2.93, abs=0.001)
    found = ask.finding(diagnosis, "token-drop")
    assert "29.8 %" in found.summary and found.severity == "critical"
    assert ask.symptom(diagnosis, "moe_drop").status == "found"


@each_telling
def test_f03_a_dropless_run_has_no_drop_rate(telling: str, tmp_path: Path) -> None:
    diagnosis = told("F03", tmp_path, telling)
    (row,) = ask.rows(diagnosis, "router_load")
    assert row["dropless"] is True and row["dropped_count"] is None and row["drop_ratio"] is None
    assert row["imbalance_ratio"] == 2.9296875 and row["busiest_ep_rank"] == 0
    assert {row["dropped_count"] for row in ask.rows(diagnosis, "experts")} == {None}
    assert "token-drop" not in ask.found(diagnosis) and ask.outcome(diagnosis, "token-drop").startswith("clear")
    assert "low-capacity-factor" not in ask.found(diagnosis)
    found = ask.finding(diagnosis, "expert-imbalance")
    assert "2.93" in found.summary and "(0) 2.44" in found.summary
    assert "aux-loss-coeff" in found.fix and "expert-bias" in found.fix


@each_trace
def test_f04_the_combine_waits_for_the_busy_expert_rank(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(*perturb.write(ask.CASES / "F04", tmp_path, variant))
    hot = variant.rank(0, 4)
    rounds = {row["rank"]: row for row in ask.rows(diagnosis, "expert_rounds")}
    assert {rank: row["expert_ns"] for rank, row in rounds.items()} == {
        rank: variant.ns(3000 if rank == hot else 1000) for rank in range(4)
    }
    assert {row["combine_wait_ns"] for rank, row in rounds.items() if rank != hot} == {variant.ns(2000)}
    assert {row["combine_ns"] - row["combine_wait_ns"] for row in rounds.values()} == {variant.ns(400)}
    found = ask.finding(diagnosis, "expert-imbalance")
    assert found.ranks == (hot,) and found.lost_ns == variant.ns(1500)
    assert ask.found(diagnosis) == ["expert-imbalance"], "the rank is late because of its experts"
    assert ask.symptom(diagnosis, "comm_saturation").status != "found", "the network is fine"
    assert "exposed-dispatch" not in ask.found(diagnosis)


def test_f04_one_rank_alone_tells_where_its_tokens_go() -> None:
    diagnosis = ask.run(ask.CASES / "F04" / "rank1.json")
    (row,) = ask.rows(diagnosis, "expert_balance")
    assert (row["source"], row["ep_imbalance_ratio"]) == ("splits", 1.0), (
        "it sends evenly; what others send is not seen"
    )
    assert "expert-imbalance" not in ask.found(diagnosis)


@each_trace
def test_f07_first_calls_after_a_pause_are_warm_up(variant: Variant, tmp_path: Path) -> None:
    diagnosis = ask.run(*perturb.write(ask.CASES / "F07", tmp_path, variant))
    (row,) = ask.rows(diagnosis, "cold_calls")
    assert (row["op"], row["calls_count"], row["cold_count"]) == ("dispatch", 40, 4)
    assert (row["median_ns"], row["cold_ns"]) == (variant.ns(100), variant.ns(800))
    assert row["pause_ns"] >= variant.ns(50_000)
    (doubt,) = [row for row in diagnosis.quality if row["problem"] == "cold_call"]
    assert doubt["count"] == 4 and "pause" in doubt["detail"]
    assert ask.found(diagnosis) == []


LINES: dict[str, Callable[[str], str]] = {
    "original": str,
    "prefixed": lambda line: f"[rank0]: 2026-01-05 10:00:00 INFO {line}",
    "scaled": lambda line: re.sub(r"\b(\d+)00\b", r"\g<1>0000", line.replace(" layer ", ", layer=")),
    "wrapped": lambda line: line.replace("1000,  500,", "1000,\n          500,"),
}  # fmt: skip


@pytest.mark.parametrize("telling", LINES)
def test_f08_one_log_in_several_shapes(telling: str, tmp_path: Path) -> None:
    lines = (ask.CASES / "F08" / "train.log").read_text().splitlines()
    path = tmp_path / "train.log"
    path.write_text("\n".join(map(LINES[telling], lines)) + "\n")
    diagnosis = ask.run(path)
    scale = 100 if telling == "scaled" else 1
    counts: dict[int, list[int]] = {}
    calls = {row["record"]: row["layer"] for row in ask.rows(diagnosis, "router_calls")}
    for row in ask.rows(diagnosis, "router"):
        counts.setdefault(calls[row["record"]], []).append(row["tokens_count"])
    assert counts == {key: [n * scale for n in (3000, 1000, 500, 500)] for key in (1, 2, 3)}
    (refused,) = [row for row in diagnosis.quality if row["problem"] == "refused_router_record"]
    assert refused["count"] == 1 and "nan" in refused["detail"]
    assert ask.symptom(diagnosis, "moe_drop").status == "found"
    assert ask.outcome(diagnosis, "token-drop").startswith("skipped"), "no capacity is known, so no drop rate"
