"""activations-dominate: recompute, not shard."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, outcome, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, failure, parts


def job(full: bool = True, **sizes: int) -> Tables:
    given = {"parameters": 10 * GIB, "optimizer": 10 * GIB, "activations": 30 * GIB} | sizes
    tried = 2 * GIB if full else GIB // 2
    moment = failure(tried_bytes=tried, recoverable_bytes=GIB)
    return tables(memory_parts=parts(**given), memory_moments=[moment])


def fires() -> Tables:
    return job()


def test_names_the_wrong_tool() -> None:
    found = finding("activations-dominate", fires())
    assert found.lost_bytes == 30 * GIB and found.severity == "warning"
    assert "sharding it further (ZeRO) would not help" in found.summary and "recompute" in found.fix.lower()


def test_a_note_where_a_better_allocator_would_have_done() -> None:
    assert finding("activations-dominate", job(full=False)).severity == "info"


def test_no_recomputation_for_a_loss() -> None:
    finding("activations-dominate", job(loss=15 * GIB))
    quiet("activations-dominate", job(loss=15 * GIB + 1))


def test_quiet_where_too_little_is_known() -> None:
    assert "at most 29.0 GiB" in finding("activations-dominate", job(unknown=9 * GIB)).summary
    quiet("activations-dominate", job(unknown=10 * GIB))
    assert outcome("activations-dominate", job(unknown=51 * GIB)).status == "skipped"


def test_thresholds() -> None:
    turns_exactly_at("activations-dominate", fires(), min_share_ratio=0.6)
