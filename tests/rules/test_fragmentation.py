"""fragmentation: enough is free, no piece is large enough."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, failure


def job(**more: Any) -> Tables:
    given = {"tried_bytes": 4 * GIB} | more
    hole = {"rank": 0, "device": 0, "moment": "oom", "free_bytes": 5 * GIB, "pinned_by": "model.py:7 act"}
    return tables(memory_moments=[failure(**given)], holes=[{**hole, "pinned_count": 40}])


def fires() -> Tables:
    return job()


def test_names_the_hole_and_who_keeps_it() -> None:
    found = finding("fragmentation", fires())
    assert found.lost_bytes == 5 * GIB
    assert "2048.0 MiB" in found.summary and "40 live blocks of model.py:7 act" in found.summary
    assert "expandable_segments:True" in found.fix


def test_a_hole_as_large_as_the_request_is_large_enough() -> None:
    finding("fragmentation", job(largest_hole_bytes=4 * GIB - 1))
    quiet("fragmentation", job(largest_hole_bytes=4 * GIB))


def test_a_request_beyond_everything_free_is_another_matter() -> None:
    finding("fragmentation", job(recoverable_bytes=4 * GIB))
    quiet("fragmentation", job(recoverable_bytes=4 * GIB - 1))
    quiet("fragmentation", job(recoverable_bytes=5 * GIB, private_free_bytes=2 * GIB))


def test_advice_knows_what_is_on_and_what_conflicts() -> None:
    on = finding("fragmentation", job(expandable=True))
    assert "already on" in on.fix and "expandable_segments:True" not in on.fix
    conflict = finding("fragmentation", job(conflict="DeepEP"))
    assert "DeepEP" in conflict.fix and "leave that off" in conflict.fix


def test_a_message_alone_is_less_sure() -> None:
    assert finding("fragmentation", job(largest_hole_bytes=None)).confidence_ratio == 0.8


def test_thresholds() -> None:
    turns_exactly_at("fragmentation", fires(), min_stranded_ratio=5 / 65)
