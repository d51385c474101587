"""What a fix would win, and how evenly ranks are loaded: gains in order, doubt said, every rank in the histogram."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.report import balance, what_if
from diagnose.report._blocks import Figure, Grid, Section, Text
from diagnose.report._figures_gains import histogram
from tests.report.example import example
from tests.rules.build import MS, spans, step, table

NOTHING = {"fixed": "nothing", "step_ns": 98 * MS, "measured_ns": 100 * MS, "error_ratio": 0.02, "steps_count": 4}


def made(maker: Any, **rows: list[dict[str, Any]]) -> Section | None:
    """The section of tables with these rows."""
    section: Section | None = maker.section(example(), {name: table(name, given) for name, given in rows.items()})
    return section


def blocks(section: Section | None, kind: type) -> list[Any]:
    assert section is not None
    return [b for b in section.blocks if isinstance(b, kind)]


def test_gains_of_a_pipeline() -> None:
    """Largest first; a fix that wins nothing, and a stage made ideal, which nobody can do, have no bar."""
    rows = [
        NOTHING,
        {
            "fixed": "everything",
            "step_ns": 80 * MS,
            "gain_ns": 18 * MS,
            "slowdown_ratio": 1.225,
            "explained_ratio": 1.0,
        },
        {"fixed": "stage", "stage": 1, "gain_ns": 20 * MS, "slowdown_ratio": 1.3, "explained_ratio": 1.1},
        {"fixed": "stage_balance", "gain_ns": 12 * MS},
        {"fixed": "link", "stage": 0, "own_ns": 9 * MS, "usual_ns": MS, "gain_ns": 15 * MS},
        {"fixed": "phase", "phase": "gc", "gain_ns": 0, "slowdown_ratio": 1.0, "explained_ratio": 0.0},
    ]
    section = made(what_if, what_if=rows)
    (figure,) = blocks(section, Figure)
    go.Figure(figure.spec)

    shown = ["everything usual", "link of stages 0 and 1", "even stages"]
    assert figure.spec["layout"]["yaxis"]["ticktext"] == shown
    assert figure.spec["data"][0]["x"] == pytest.approx([18.0, 15.0, 12.0])
    assert section is not None and "2.0 % off, 4 steps" in section.lead and "slowdown 1.23" in section.lead
    assert blocks(section, Grid)[1].rows == [["1", "1.300", "20.0 ms", "110.0 %"]]


def test_gains_of_ranks_by_cause() -> None:
    """Why a rank is late is beside what it costs; a group's name stays text."""
    rows = [
        NOTHING,
        {"fixed": "rank", "rank": 3, "gain_ns": 9 * MS},
        {"fixed": "rank_part", "rank": 3, "part": "compute", "gain_ns": 8 * MS},
        {"fixed": "part", "part": "launch", "gain_ns": 2 * MS},
        {"fixed": "group", "group": "<b>dp0</b>", "gain_ns": 5 * MS},
    ]
    section = made(what_if, rank_what_if=rows)
    (figure,) = blocks(section, Figure)

    shown = ["rank 3 like the others", "group &lt;b&gt;dp0&lt;/b&gt;", "no late launches"]
    assert figure.spec["layout"]["yaxis"]["ticktext"] == shown
    (grid,) = blocks(section, Grid)
    assert [grid.columns[i][0] for i in (1, 2)] == ["Whole", "Compute"] and grid.rows[0][1:3] == ["9.00 ms", "8.00 ms"]


def test_no_answer_is_said() -> None:
    section = made(what_if, what_if=[{**NOTHING, "reason": "the replayed step is 29.4% off the recorded one"}])
    (text,) = blocks(section, Text)

    assert "29.4% off" in text.text and not blocks(section, Figure)
    assert made(what_if) is None and made(what_if, what_if=[]) is None


def test_balance_of_traces() -> None:
    """Busy is compute, not waiting; mean over longest."""
    rows = spans(step(rank=0, compute_ns=60 * MS, wait_ns=40 * MS), step(rank=1, compute_ns=100 * MS))
    section = made(balance, spans=rows)

    assert section is not None
    assert section.lead.startswith("Rank 1 is busy longest, 100 ms; rank 0 shortest, 60.0 ms per step")
    assert section.lead.endswith("80.0 %.")
    waits = next(row for row in blocks(section, Grid)[0].rows if row[0] == "waiting for peers")
    assert waits[1:] == ["0 ns", "20.0 ms", "40.0 ms", "rank 0"]
    assert made(balance, spans=spans(step(rank=0, compute_ns=MS))) is None


def test_balance_of_a_pipeline() -> None:
    """Sends and synchronisation of a stage are not its work."""
    work = [
        {"rank": r, "step": s, "stage": r, "phase": p, "dur_ns": d}
        for r, busy in ((0, 30 * MS), (1, 60 * MS))
        for s in (1, 2)
        for p, d in (("forward", busy), ("send_forward", 50 * MS), ("gradient_sync", 9 * MS))
    ]
    section = made(balance, stage_work=work)

    assert section is not None and section.lead.startswith("Rank 1 is busy longest, 60.0 ms; rank 0 shortest, 30.0 ms")


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=200))
def test_every_rank_is_in_the_histogram(busy: list[int]) -> None:
    figure = histogram(list(range(len(busy))), busy)

    assert sum(figure["data"][0]["y"]) == len(busy)
