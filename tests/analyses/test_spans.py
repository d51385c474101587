"""What judgement measures against: whole steps, else the recording; columns sum to the duration."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.analyses import step_time, steps, window_time
from diagnose.analyses.spans import spans
from diagnose.schema import PARTS, TableSchema


def table(schema: TableSchema, rows: list[dict[str, Any]]) -> Any:
    names = {key for row in rows for key in row}
    return schema.build({name: [row.get(name) for row in rows] for name in names})


def made(
    parts: list[tuple[int, int, str, int]], window: list[tuple[int, str, int]], cut: list[tuple[int, int]] = ()
) -> list[dict[str, Any]]:
    keys = sorted({(rank, step) for rank, step, _, _ in parts})
    return spans(
        table(step_time.SCHEMA, [dict(zip(("rank", "step", "part", "dur_ns"), row, strict=True)) for row in parts]),
        table(window_time.SCHEMA, [dict(zip(("rank", "part", "dur_ns"), row, strict=True)) for row in window]),
        table(steps.SCHEMA, [{"rank": r, "step": s, "complete": (r, s) not in cut} for r, s in keys]),
    ).to_pylist()


def test_every_part_has_its_column() -> None:
    (row,) = made([(0, 1, part, 2**n) for n, part in enumerate(PARTS)], [])

    assert row["dur_ns"] == 2 ** len(PARTS) - 1
    assert row["comm_ns"] == sum(2**n for n, part in enumerate(PARTS) if part.endswith(("_comm", "_transfer")))
    assert row["wait_ns"] == sum(2**n for n, part in enumerate(PARTS) if part.endswith("_wait"))


def test_the_mean_is_per_rank() -> None:
    rows = made([(0, 1, "compute", 10), (0, 2, "compute", 20), (1, 1, "idle", 7)], [])

    assert [(r["rank"], r["step"], r["mean_ns"], r["spans_count"]) for r in rows] == [
        (0, 1, 15, 2),
        (0, 2, 15, 2),
        (1, 1, 7, 1),
    ]


def test_a_cut_step_counts_only_where_there_is_no_other() -> None:
    parts = [(0, 1, "compute", 10), (0, 2, "compute", 99), (1, 1, "compute", 5)]
    rows = made(parts, [], cut=[(0, 2), (1, 1)])

    assert [(r["rank"], r["step"]) for r in rows] == [(0, 1), (1, 1)]


def test_the_recording_only_where_no_rank_has_steps() -> None:
    window = [(0, "compute", 50), (1, "dp_comm", 60)]
    assert [(r["rank"], r["scope"]) for r in made([(0, 1, "compute", 10)], window)] == [(0, "per step")]
    rows = made([], window)

    assert [(r["rank"], r["step"], r["dur_ns"]) for r in rows] == [(0, None, 50), (1, None, 60)]
    assert {r["scope"] for r in rows} == {"over the recording (no steps)"}


@pytest.mark.parametrize("parts", [[], [(0, 1, "compute", 0)]])
def test_nothing_in_little_out(parts: list[tuple[int, int, str, int]]) -> None:
    assert len(made(parts, [])) == len(parts)
