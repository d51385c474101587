"""Random work of random stages: nothing breaks, parts sum, idle time is never negative, unknown stays unknown."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analyses.bubbles import bubbles
from diagnose.analyses.pipeline import pipeline
from diagnose.analyses.schedule_work import schedule_work
from diagnose.analyses.stage_work import stage_work
from diagnose.analyses.stages import stages
from tests.rules.build import table

PARTS = ("work_ns", "schedule_ns", "imbalance_ns", "worker_ns", "variation_ns", "transfer_ns")
PHASES = ("forward", "backward", "backward_input", "weight", "send_forward", "optimizer")
small = st.one_of(st.none(), st.integers(0, 2))
piece = st.fixed_dictionaries(
    {
        "rank": st.integers(-2, 4), "step": st.integers(0, 2), "stage": small, "chunk": small, "replica": small,
        "microbatch": small, "phase": st.sampled_from(PHASES), "seq": st.just(0), "source": st.just("primus"),
        "ts_ns": st.integers(0, 50), "dur_ns": st.integers(0, 20),
    }
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(piece, max_size=40))
def test_whatever_the_work(rows: list[dict[str, Any]]) -> None:
    work = stage_work(table("microbatches", rows))
    for row in bubbles(work).to_pylist():
        if row["work_ns"] is None:
            assert row["bubble_ratio"] is None and row["law_ns"] is None
        else:
            assert sum(row[part] or 0 for part in PARTS) == row["dur_ns"]
            assert row["bubble_ns"] >= 0
    found = pipeline(work)
    for row in found.to_pylist():
        idle = [row[f"{part}_idle_ns"] for part in ("warmup", "steady", "cooldown")]
        assert row["busy_ns"] + sum(idle) == row["dur_ns"]
        assert min(idle) >= 0
    assert stages(found).num_rows <= found.num_rows
    assert schedule_work(work).num_rows <= work.num_rows
