"""Mistakes that users reported in comparing ranks, and the right answers. Inputs: tests/cases/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import ask, perturb
from tests.perturb import ALL, Variant

each = pytest.mark.parametrize("variant", ALL, ids=perturb.names(ALL))


def diagnose(case: str, folder: Path, variant: Variant) -> Any:
    return ask.run(*perturb.write(ask.CASES / case, folder, variant))


@each
def test_a15_the_all_reduce_starts_at_one_moment(variant: Variant, tmp_path: Path) -> None:
    (call,) = ask.rows(diagnose("A15", tmp_path, variant), "arrivals")
    assert (call["spread_ns"], call["late_ns"], call["last_rank"]) == (0, 0, None)


@each
def test_a40_clocks_first_then_who_is_late(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A40", tmp_path, variant)
    ahead, late = variant.rank(1, 2), variant.rank(1, 2)
    offset = {row["rank"]: row["offset_ns"] for row in ask.rows(diagnosis, "clocks")}
    assert abs(offset[0] - offset[1]) == variant.ns(8400)
    assert offset[ahead] < offset[1 - ahead], "the clock of the rank that is ahead is set back"
    assert max(row["error_ns"] for row in ask.rows(diagnosis, "clocks")) <= 2_000
    assert {(c["last_rank"], c["late_ns"]) for c in ask.rows(diagnosis, "arrivals")} == {(late, variant.ns(400))}
    assert {row["count"] for row in diagnosis.quality if row["problem"] == "clocks_apart"} == {3}


@each
def test_b10_the_straggler_has_the_short_kernel(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B10", tmp_path, variant)
    straggler = variant.rank(3, 4)
    (call,) = ask.rows(diagnosis, "arrivals")
    assert (call["last_rank"], call["late_ns"]) == (straggler, variant.ns(9500))
    rates = [row["busbw_bytes_per_s"] for row in ask.rows(diagnosis, "collectives")]
    assert rates == [pytest.approx(100.663296e9 / float(variant.scale))] * 4
    assert {row["bandwidth_bound"] for row in ask.rows(diagnosis, "collectives")} == {"measured"}
    waits = {row["rank"]: row["wait_ns"] for row in ask.rows(diagnosis, "collectives")}
    assert waits == {r: 0 if r == straggler else variant.ns(9500) for r in range(4)}
    assert ask.parts(diagnosis, variant.step(0), rank=(straggler + 1) % 4)["other_wait"] == variant.ns(9500)
    (found,) = [f for f in diagnosis.findings if f.rule == "late-rank"]
    assert found.ranks == (straggler,) and found.lost_ns == variant.ns(9500)
    assert "computes" in found.summary, "the cause is compute, not the network"
    assert next(s for s in diagnosis.symptoms if s.symptom == "comm_saturation").status != "found"


@each
def test_b14_ids_differ_but_the_call_is_one(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("B14", tmp_path, variant)
    assert [m["level"] for m in ask.rows(diagnosis, "matches")] == ["seq", "seq"]
    assert len({m["match"] for m in ask.rows(diagnosis, "matches")}) == 1
    (call,) = ask.rows(diagnosis, "arrivals")
    assert call["spread_ns"] == variant.ns(5)
    assert call["last_rank"] is None, "one shared call tells its clocks no better than its transfer"


@each
def test_d09_one_size_at_two_speeds_is_the_network_and_no_straggler(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("D09", tmp_path, variant)
    found = ask.finding(diagnosis, "varying-bandwidth")
    assert (found.evidence["slow_count"], found.evidence["calls_count"]) == (3, 30)
    assert found.evidence["typical_ns"] == variant.ns(600) and found.lost_ns == variant.ns(16200)
    rates = [found.evidence[name] * float(variant.scale) for name in ("p5_busbw_bytes_per_s", "p50_busbw_bytes_per_s")]
    assert rates == [pytest.approx(10.4858e9, 1e-4), pytest.approx(104.858e9, 1e-4)]
    assert "congestion" in found.summary
    assert not {"late-rank", "moving-straggler", "low-bus-bandwidth"} & {f.rule for f in diagnosis.findings}


def test_b22_the_rank_is_what_the_file_says() -> None:
    diagnosis = ask.run(ask.CASES / "B22")
    assert ask.ranks(diagnosis) == {0, 2, 10}
    by_name = {Path(row["path"]).stem: row["rank"] for row in ask.rows(diagnosis, "files") if row["kind"] == "kineto"}
    assert by_name == {"rank0": 0, "rank2": 2, "rank10": 10}
    assert {row["rank"] for row in ask.rows(diagnosis, "late_ranks")} <= {0, 2, 10}


def test_one_file_of_a40_compares_nothing() -> None:
    diagnosis = ask.run(ask.CASES / "A40" / "rank0.json")
    assert {m["reason"] for m in ask.rows(diagnosis, "matches")} == {"peers_absent"}
    assert [c["offset_ns"] for c in ask.rows(diagnosis, "clocks")] == [None]
    assert {row["wait_ns"] for row in ask.rows(diagnosis, "collectives")} == {None}
    outcome = next(o for o in diagnosis.outcomes if o.rule == "late-rank")
    assert outcome.status == "skipped" and "traces of all ranks" in outcome.reason
    assert "unmatched_calls" not in ask.problems(diagnosis)
