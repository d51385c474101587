"""uneven-batch: work follows tokens, or backward follows forward, and the longest batch sets the pace."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def fires(**more: Any) -> Tables:
    row = {
        "evidence": "steps", "scope": "per step", "step_ns": 100 * MS, "waits_ns": 20 * MS, "variation_ratio": 0.3,
        "token_correlation_ratio": 0.97, "judged_count": 40, "ranks": [0, 1], "rank": 1, "blamed_ratio": 0.3,
    }  # fmt: skip
    return tables(uneven_work=[{**row, **more}], spans=spans(step(compute_ns=100 * MS)))


def pipeline(**more: Any) -> Tables:
    replayed = {"evidence": "pipeline", "gain_ns": 15 * MS, "waits_ns": 15 * MS, "backward_correlation_ratio": 0.95}
    return fires(**{**replayed, "token_correlation_ratio": None, "ranks": None, **more})


def test_fires_on_work_that_follows_tokens() -> None:
    found = finding("uneven-batch", fires())

    assert (found.lost_ns, found.lost_kind, found.ranks) == (20 * MS, "bound", (0, 1))
    assert "follows the tokens" in found.summary


def test_fires_on_long_micro_batches() -> None:
    found = finding("uneven-batch", pipeline())

    assert (found.lost_ns, found.lost_kind) == (15 * MS, "simulated")
    assert "backward of a micro-batch" in found.summary


def test_quiet_where_nothing_goes_with_it() -> None:
    """Work that differs without its tokens is the host's or the network's; traces tell moving-straggler."""
    quiet("uneven-batch", fires(token_correlation_ratio=0.5))
    quiet("uneven-batch", fires(token_correlation_ratio=None))
    quiet("uneven-batch", fires(evidence="calls"))


def test_exactly_at_each_threshold() -> None:
    turns_exactly_at("uneven-batch", fires(), min_share_ratio=0.2, min_variation_ratio=0.3, min_correlation_ratio=0.97)
    turns_exactly_at("uneven-batch", pipeline(), min_share_ratio=0.15, min_correlation_ratio=0.95)


def test_skipped_without_records() -> None:
    assert outcome("uneven-batch", tables()).status == "skipped"
