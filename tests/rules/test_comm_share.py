"""comm-share: exposed communication as a share of the step."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(*parts: dict[str, int], **more: list[dict[str, object]]) -> Tables:
    return tables(spans=spans(*(step(rank=rank, **p) for rank, p in enumerate(parts))), **more)


def fires() -> Tables:
    return job({"compute_ns": 80 * MS, "comm_ns": 20 * MS}, collectives=[call("all_reduce", 20 * MS)])


def test_fires_and_says_that_one_rank_cannot_tell_waiting() -> None:
    found = finding("comm-share", fires())
    assert (found.lost_ns, found.lost_ratio, found.severity) == (20 * MS, 0.2, "warning")
    assert found.confidence_ratio == 0.5
    assert "waiting for other ranks is included" in found.summary
    assert "all_reduce of dp" in found.summary
    assert found.summary.startswith("20.0 ms of 100 ms per step")


def test_quiet_exactly_at_a_tenth_of_the_step() -> None:
    quiet("comm-share", job({"compute_ns": 90 * MS, "comm_ns": 10 * MS}))
    finding("comm-share", job({"compute_ns": 90 * MS - 1, "comm_ns": 10 * MS + 1}))


def test_critical_above_three_tenths() -> None:
    assert finding("comm-share", job({"compute_ns": 70 * MS, "comm_ns": 30 * MS})).severity == "warning"
    assert finding("comm-share", job({"compute_ns": 70 * MS - 1, "comm_ns": 30 * MS + 1})).severity == "critical"


def test_thresholds() -> None:
    turns_exactly_at("comm-share", fires(), min_share_ratio=0.2)


def test_waiting_for_a_late_rank_is_not_communication() -> None:
    # Ranks 0 to 2 wait 9.5 ms for rank 3, whose own call is short: the transfer is 0.5 ms of 11.
    waiting, late = {"compute_ns": 1 * MS, "comm_ns": 10 * MS}, {"compute_ns": 10_500_000, "comm_ns": MS // 2}
    quiet("comm-share", job(waiting, waiting, waiting, late))


def test_several_ranks_count_the_one_that_waits_least() -> None:
    found = finding(
        "comm-share", job({"compute_ns": 60 * MS, "comm_ns": 40 * MS}, {"compute_ns": 75 * MS, "comm_ns": 25 * MS})
    )
    assert (found.lost_ns, found.ranks, found.confidence_ratio) == (25 * MS, (1,), 0.7)


def test_matched_calls_count_transfer_only() -> None:
    given = job(
        {"compute_ns": 50 * MS, "comm_ns": 20 * MS, "wait_ns": 30 * MS},
        collectives=[call("all_reduce", 50 * MS, wait_ns=30 * MS, transfer_ns=20 * MS)],
    )
    found = finding("comm-share", given)
    assert (found.lost_ns, found.confidence_ratio) == (20 * MS, 1.0)
    assert "transfer only" in found.summary


def test_the_mean_over_steps_counts() -> None:
    given = tables(
        spans=spans(step(1, compute_ns=90 * MS, comm_ns=10 * MS), step(2, compute_ns=60 * MS, comm_ns=40 * MS))
    )
    assert finding("comm-share", given).lost_ns == 25 * MS


def test_without_steps_it_says_so() -> None:
    given = tables(spans=spans(step(None, compute_ns=50 * MS, comm_ns=50 * MS)))
    assert "over the recording (no steps)" in finding("comm-share", given).summary


def test_no_answer_without_compute() -> None:
    result = outcome("comm-share", job({"comm_ns": 100 * MS}))
    assert (result.status, "no compute" in result.reason) == ("skipped", True)


def test_no_answer_where_unknown_kernels_could_be_communication() -> None:
    given = job({"compute_ns": 80 * MS, "comm_ns": 5 * MS, "unclassified_ns": 15 * MS})
    result = outcome("comm-share", given)
    assert (result.status, "unknown kind" in result.reason) == ("skipped", True)
    at = job({"compute_ns": 89 * MS, "comm_ns": 10 * MS, "unclassified_ns": MS})
    assert outcome("comm-share", at).status == "skipped"
    quiet("comm-share", job({"compute_ns": 95 * MS, "comm_ns": 1 * MS, "unclassified_ns": 4 * MS}))


def test_mostly_waiting_is_said_plainly() -> None:
    def said(wait_ns: int) -> str:
        parts = {"compute_ns": 50 * MS, "comm_ns": 20 * MS, "wait_ns": wait_ns}
        calls = [call("all_reduce", 50 * MS, wait_ns=30 * MS, transfer_ns=20 * MS)]
        return finding("comm-share", job(parts, collectives=calls)).summary

    assert "waiting for late ranks takes more, so look there first (low speed-up)" in said(20_100_000)
    assert "waiting" not in said(20 * MS)
