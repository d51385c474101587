"""The five answers and the three questions: found, clear only when looked for, else what would settle it."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose import engine
from diagnose.findings import SYMPTOMS, Finding, Outcome
from tests.rules.build import RULES, tables
from tests.rules.test_all_rules import healthy


def finding(rule: str, symptom: str, severity: str = "warning", lost_ns: int = 5, lost_bytes: int = 0) -> Finding:
    texts = {"title": f"title of {rule}", "summary": "s", "why": "w", "fix": "f", "lost_kind": "bound"}
    numbers: dict[str, Any] = {
        "lost_ns": lost_ns,
        "lost_ratio": lost_ns / 100,
        "lost_bytes": lost_bytes,
        "confidence_ratio": 1.0,
    }
    return Finding(
        rule=rule, symptom=symptom, severity=severity, ranks=(), hosts=(), steps=(), evidence={}, **texts, **numbers
    )


def ended(rule: str, symptom: str, status: str, *findings: Finding, decides: bool = True, reason: str = "") -> Outcome:
    return Outcome(rule, symptom, status, reason, findings, decides)


def answer(symptom: str, *outcomes: Outcome, **given: list[dict[str, Any]]) -> Any:
    return {s.symptom: s for s in engine.symptoms(outcomes, tables(**given))}[symptom]


def test_all_five_always_answer_and_name_what_would_settle_them() -> None:
    answers = engine.symptoms([], {})

    assert [a.symptom for a in answers] == list(SYMPTOMS)
    assert {a.status for a in answers} == {"unknown"}
    words = (
        "trace",
        "training log or live hook record over many steps",
        "other ranks",
        "router statistics",
        "memory snapshot",
    )
    assert all(word in a.reason for word, a in zip(words, answers, strict=True))
    assert all(a.lost_ns is None and a.lost_ratio is None for a in answers)


def test_the_loss_is_the_largest_finding_not_the_sum() -> None:
    two = (finding("a", "comm_saturation", lost_ns=30), finding("a", "comm_saturation", lost_ns=20))
    found = answer("comm_saturation", ended("a", "comm_saturation", "found", *two))

    assert (found.status, found.lost_ns, found.lost_ratio, found.lost_bytes) == ("found", 30, 0.3, None)
    assert found.reason == "title of a"


def test_information_is_no_symptom() -> None:
    info = finding("a", "comm_saturation", "info")
    both = (ended("a", "comm_saturation", "found", info), ended("comm-share", "comm_saturation", "clear"))

    assert answer("comm_saturation", *both).status == "clear"


def test_clear_needs_every_deciding_rule_and_at_least_one() -> None:
    clear = ended("comm-share", "comm_saturation", "clear")
    assert answer("comm_saturation", clear).status == "clear"
    assert answer("comm_saturation", ended("x", "comm_saturation", "clear", decides=False)).status == "unknown"
    for status in ("skipped", "failed"):
        open_ = answer("comm_saturation", clear, ended("y", "comm_saturation", status, reason="no kernels"))
        assert (open_.status, open_.reason) == (
            "unknown",
            "no kernels" if status == "skipped" else "y failed: no kernels",
        )
    optional = ended("z", "comm_saturation", "skipped", decides=False)
    assert answer("comm_saturation", clear, optional).status == "clear"


def test_what_several_rules_lack_is_said_once() -> None:
    reasons = ("no host call; needed: a trace with CPU activities", "no launch; needed: a trace with CPU activities")
    rules = [ended(f"r{n}", "low_speedup", "skipped", reason=reason) for n, reason in enumerate(reasons)]

    assert answer("low_speedup", *rules).reason == "no host call; no launch; needed: a trace with CPU activities"


@pytest.mark.parametrize(("world_size", "status"), [(1, "clear"), (8, "unknown"), (None, "unknown")])
def test_low_speedup_is_not_clear_before_ranks_were_compared(world_size: int | None, status: str) -> None:
    local = ended("launch-bound", "low_speedup", "clear")
    result = answer("low_speedup", local, files=[{"file": 0, "world_size": world_size}])

    assert result.status == status
    compared = ended("late-rank", "low_speedup", "clear")
    assert answer("low_speedup", local, compared, files=[{"file": 0, "world_size": world_size}]).status == "clear"


@pytest.mark.parametrize(("wait_ns", "comm_ns", "said"), [(40, 9, True), (9, 9, False), (3, 1, False), (4, 1, True)])
def test_saturation_that_is_clear_says_where_the_time_is_when_it_is_waiting(
    wait_ns: int, comm_ns: int, said: bool
) -> None:
    """Above the transfer, and above 3 % of the step."""
    spans = [
        {"rank": rank, "step": 1, "wait_ns": wait_ns * rank, "comm_ns": comm_ns, "mean_ns": 100} for rank in (0, 1)
    ]
    clear = ended("comm-share", "comm_saturation", "clear")
    reason = answer("comm_saturation", clear, spans=spans).reason
    assert ("waiting for other ranks" in reason and "low_speedup" in reason) == said
    other = ended("late-rank", "low_speedup", "clear")
    assert "waiting" not in answer("low_speedup", other, spans=spans).reason


def test_a_hang_stands_before_everything_that_only_costs_time() -> None:
    slow = finding("comm-share", "comm_saturation", "critical", lost_ns=10**12)
    hang = finding("stuck-collective", "low_speedup", "critical", lost_ns=0)
    calm = finding("stuck-collective", "low_speedup", "warning", lost_ns=0)
    for first, second in ((hang, slow), (slow, calm)):
        outcomes = [ended(f.rule, f.symptom, "found", f) for f in (second, first)]
        assert engine.ranked(outcomes) == [first, second]


def test_missing_device_side_is_named() -> None:
    quality = [{"problem": "gpu_events_missing", "detail": "5 kernel launches, 0 kernels recorded", "count": 5}]
    skipped = ended("comm-share", "comm_saturation", "skipped", reason="no spans in these inputs")

    assert answer("comm_saturation", skipped, quality=quality).reason == "5 kernel launches, 0 kernels recorded"


def test_a_healthy_trace_of_one_rank_of_many() -> None:
    names = ("clocks", "arrivals", "late_ranks", "compared_ranks", "rank_what_if", "link_expectations", "trends")
    alone = {name: tables()[name] for name in names}
    alone["clocks"] = tables(clocks=[{"rank": 0, "reason": "alone"}])["clocks"]
    given = healthy() | alone
    outcomes = engine.evaluate(engine.load_rules([RULES]), given)
    status = {s.symptom: s.status for s in engine.symptoms(outcomes, given)}

    assert status == {
        "comm_saturation": "clear",
        "drifting_throughput": "unknown",
        "low_speedup": "unknown",
        "moe_drop": "clear",
        "oom_despite_headroom": "clear",
    }


def test_a_healthy_log_of_two_thousand_steps_shows_no_drift() -> None:
    outcomes = engine.evaluate(engine.load_rules([RULES]), healthy())
    assert {s.symptom: s.status for s in engine.symptoms(outcomes, healthy())}["drifting_throughput"] == "clear"


def test_a_healthy_job_whose_ranks_were_compared() -> None:
    outcomes = engine.evaluate(engine.load_rules([RULES]), healthy())
    assert {s.symptom: s.status for s in engine.symptoms(outcomes, healthy())}["low_speedup"] == "clear"


def test_no_kernels_is_not_healthy() -> None:
    given = tables()
    outcomes = engine.evaluate(engine.load_rules([RULES]), given)

    assert {s.status for s in engine.symptoms(outcomes, given)} == {"unknown"}


GROUP = {"group": "tp0", "size": 8, "dim": "tp", "dim_source": "description", "node_count": 1}


@pytest.mark.parametrize(
    ("groups", "settings", "expected"),
    [
        ([], [], "unknown"),
        ([GROUP], [], "yes"),
        ([{**GROUP, "node_count": None}], [], "unknown"),
        ([{**GROUP, "node_count": 2}], [], "no"),
        ([{**GROUP, "node_count": 2}], [{"key": "cluster.fast_domain", "value": "72"}], "yes"),
        ([{**GROUP, "node_count": 2}], [{"key": "cluster.fast_domain", "value": "4"}], "no"),
        ([GROUP, {**GROUP, "group": "ep0", "dim": "ep", "node_count": 4}], [], "no"),
        ([{**GROUP, "dim": "dp"}], [], "yes"),
        ([{**GROUP, "dim": "other", "dim_source": "unknown"}], [], "unknown"),
        ([{**GROUP, "size": 1}], [], "unknown"),
    ],
)
def test_fast_domain(groups: list[dict[str, Any]], settings: list[dict[str, Any]], expected: str) -> None:
    first = engine.questions([], tables(groups=groups, settings=settings))[0]

    assert (first["answer"], first["findings"]) == (expected, [])
    assert first["figure"]


def test_bubble_and_memory_answer_from_their_rules() -> None:
    bubble = ended("pipeline-bubble", "low_speedup", "found", finding("pipeline-bubble", "low_speedup"))
    state = ended(
        "state-dominates", "oom_despite_headroom", "found", finding("state-dominates", "oom_despite_headroom")
    )
    activations = ended("activations-dominate", "oom_despite_headroom", "found", finding("activations-dominate", "oom"))

    assert [q["answer"] for q in engine.questions([], {})] == ["unknown"] * 3
    assert engine.questions([bubble], {})[1]["answer"] == "no"
    assert engine.questions([bubble], {})[1]["findings"] == ["pipeline-bubble"]
    assert engine.questions([ended("pipeline-bubble", "low_speedup", "clear")], {})[1]["answer"] == "yes"
    assert engine.questions([state], {})[2]["answer"] == "yes"
    assert engine.questions([activations], {})[2]["answer"] == "no"
    assert engine.questions([state, activations], {})[2]["answer"] == "unknown"
