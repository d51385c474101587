"""state-dominates: shard, not recompute."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, failure, parts


def job(full: bool = True, **sizes: int) -> Tables:
    given = {"parameters": 10 * GIB, "optimizer": 20 * GIB, "activations": 20 * GIB} | sizes
    tried = 2 * GIB if full else GIB // 2
    moment = failure(tried_bytes=tried, recoverable_bytes=GIB)
    return tables(memory_parts=parts(**given), memory_moments=[moment])


def fires() -> Tables:
    return job()


def test_names_the_wrong_tool() -> None:
    found = finding("state-dominates", fires())
    assert found.lost_bytes == 30 * GIB and found.severity == "warning"
    assert "recomputing them would not help" in found.summary and "ZeRO" in found.fix


def test_a_note_where_a_better_allocator_would_have_done() -> None:
    assert finding("state-dominates", job(full=False)).severity == "info"


def test_thresholds() -> None:
    turns_exactly_at("state-dominates", fires(), min_share_ratio=0.6)
