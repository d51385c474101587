"""transient-peak: logits, which no checkpointing reaches."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, quiet, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, parts


def job(**more: int) -> Tables:
    rows = parts(**{"parameters": 10 * GIB, "activations": 30 * GIB, "loss": 20 * GIB})
    return tables(memory_parts=[row | (more if row["part"] == "activations" else {}) for row in rows])


def fires() -> Tables:
    return job()


def test_says_that_checkpointing_cannot_help() -> None:
    found = finding("transient-peak", fires())
    assert found.lost_bytes == 20 * GIB and found.evidence["rest_bytes"] == 10 * GIB
    assert "Chunk the loss" in found.fix


def test_many_at_one_line_are_a_leak() -> None:
    finding("transient-peak", job(loss_count=16))
    quiet("transient-peak", job(loss_count=17))


def test_thresholds() -> None:
    turns_exactly_at("transient-peak", fires(), min_share_ratio=0.5)
