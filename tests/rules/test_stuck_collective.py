"""stuck-collective: one finding per culprit, with who only waited; a warning without culprit where all entered."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables


def job(*hangs: dict[str, Any]) -> Tables:
    return tables(spans=spans(step(compute_ns=100 * MS)), hangs=list(hangs))


def row(rank: int, role: str, culprit: bool = True, **more: Any) -> dict[str, Any]:
    call = {"group": "41", "description": "TENSOR", "seq": 7, "op": "all_gather", "ts_ns": 100}
    return {**call, "rank": rank, "role": role, "culprit": culprit, "enqueued_seq": 6, "peers_seq": 9, **more}


def fires() -> Tables:
    return job(
        row(12, "never_enqueued", waiting_ranks=[13], unfinished_count=0, first_error="out of memory"),
        row(13, "waited", False),
    )


def test_names_the_culprit_the_call_and_who_waited() -> None:
    found = finding("stuck-collective", fires())
    assert (found.ranks, found.severity) == ((12,), "critical")
    said = ("never enqueued seq 7 (all_gather) of group TENSOR 41", "in no collective", "ranks 13", "out of memory")
    assert all(text in found.summary for text in said), found.summary


def test_one_finding_per_culprit_about_its_oldest_call() -> None:
    result = outcome(
        "stuck-collective",
        job(
            row(12, "stuck_completing", ts_ns=50, completed_seq=3, waiting_ranks=[15]),
            row(12, "never_enqueued", ts_ns=100, waiting_ranks=[13]),
            row(14, "stuck_completing", completed_seq=3, waiting_ranks=[15]),
        ),
    )
    assert [f.ranks for f in result.findings] == [(12,), (14,)], "surest first, then by rank, in every run"
    assert {f.ranks: f.evidence["role"] for f in result.findings} == {
        (12,): "never_enqueued",
        (14,): "stuck_completing",
    }
    assert {f.ranks: tuple(f.evidence["waiting_ranks"]) for f in result.findings}[(12,)] == (13, 15)


def test_all_entered_blames_no_rank() -> None:
    found = finding("stuck-collective", job(row(0, "entered", False), row(1, "entered", False)))
    assert (found.ranks, found.severity) == ((), "warning")
    assert "no rank is at fault" in found.summary


def test_quiet_where_nobody_is_named() -> None:
    quiet("stuck-collective", job(row(13, "waited", False)))
    quiet("stuck-collective", job())
