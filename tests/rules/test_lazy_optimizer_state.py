"""lazy-optimizer-state: one jump, no leak."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, growth


def job(**more: Any) -> Tables:
    given = {"shape": "jump", "jump_bytes": 20 * GIB, "jump_step": 1, "first_bytes": 20 * GIB} | more
    return tables(memory_growth=[growth(**given)])


def fires() -> Tables:
    return job()


def test_says_that_it_is_no_leak() -> None:
    found = finding("lazy-optimizer-state", fires())
    assert found.severity == "info" and "not a leak" in found.summary and "resum" in found.fix


def test_a_later_jump_is_something_else() -> None:
    finding("lazy-optimizer-state", job(jump_step=3))
    quiet("lazy-optimizer-state", job(jump_step=4))


def test_thresholds() -> None:
    turns_exactly_at("lazy-optimizer-state", fires(), min_jump_ratio=0.5)
