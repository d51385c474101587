"""expert-parallel-crosses-nodes where it fires; what it says and where it turns: test_parallel_crosses_nodes."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules import crossing_rows


def fires() -> Tables:
    return crossing_rows.fires("ep")
