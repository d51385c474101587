"""communication-buffers: gathered shards and buckets."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, tables, turns_exactly_at
from tests.rules.memory_rows import GIB, parts


def job(buffers: int = 10 * GIB) -> Tables:
    return tables(memory_parts=parts(activations=50 * GIB - buffers, comm_buffers=buffers))


def fires() -> Tables:
    return job()


def test_names_the_place() -> None:
    found = finding("communication-buffers", fires())
    assert found.lost_bytes == 10 * GIB and "model.py:7 comm_buffers" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("communication-buffers", fires(), min_share_ratio=0.2)
