"""Sections that compare ranks: who waits for whom, and bandwidth beside what links should give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from diagnose.report import bandwidth, exchange, waiting
from diagnose.report._blocks import Figure, Grid, Text
from diagnose.report._figures_ranks import against_size, heat, matrix
from tests import ask


@pytest.fixture(scope="module")
def straggler() -> Any:
    return ask.run(ask.CASES / "B10")


def _blocks(section: Any, kind: type) -> list[Any]:
    return [b for b in section.blocks if isinstance(b, kind)]


def test_the_late_rank_waits_least_and_is_named(straggler: Any) -> None:
    section = waiting.section(straggler, straggler.tables)
    assert section is not None
    assert section.lead.startswith("Rank 3 comes last in 1 of 1 shared calls, 9.50 ms behind")
    (figure,) = _blocks(section, Figure)
    assert figure.spec["data"][0]["z"] == [[9.5], [9.5], [9.5], [0.0]]
    assert figure.spec["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    go.Figure(figure.spec)
    blamed, pairs = _blocks(section, Grid)
    assert blamed.rows[0][0] == "rank 3" and blamed.rows[0][2].text == "9.50 ms"
    assert sorted((r[0], r[1]) for r in pairs.rows) == [(f"rank {r}", "rank 3") for r in range(3)]
    said = [block.text for block in _blocks(section, Text)]
    assert "Clocks of the 4 ranks agree, to 1.00 ms at most, from the ends of shared calls." in said


def test_measured_bandwidth_is_shown_and_unknown_links_are_said_to_be(straggler: Any) -> None:
    section = bandwidth.section(straggler, straggler.tables)
    assert section is not None
    assert section.lead == "Transfer was measured; what these links should give is not known."
    (figure,) = _blocks(section, Figure)
    go.Figure(figure.spec)
    assert figure.spec["data"][0]["y"] == [pytest.approx(100.663296)]
    assert "expected" in _blocks(section, Grid)[0].more


def test_one_rank_has_no_such_section() -> None:
    alone = ask.run(ask.CASES / "B10" / "rank0.json")
    assert waiting.section(alone, alone.tables) is None


def test_names_from_inputs_stay_text() -> None:
    spec = heat(["<b>rank"], ["<script>"], [[5]])
    assert "<script>" not in str(spec) and "<b>" not in str(spec)
    curve = against_size([("<i>op", 8, 1e9, "x")], [("<i>op", 8, 2e9)])
    assert "<i>" not in str([t["name"] for t in curve["data"]])


def test_a_rank_without_part_in_a_call_is_a_gap() -> None:
    spec = heat(["rank 0", "rank 1"], ["1", "2"], [[0, None], [2_000_000, 3]])
    assert spec["data"][0]["z"][0] == [0.0, None] and spec["data"][0]["zmin"] == 0
    go.Figure(spec)


def test_bytes_between_ranks_as_a_matrix_and_who_gets_more() -> None:
    diagnosis = ask.run(Path(__file__).parents[2] / "fixtures" / "gloo_slow_rank" / "all_to_all_slow")
    section = exchange.section(diagnosis, diagnosis.tables)
    assert section is not None
    assert section.lead.endswith("In the most uneven call rank 2 receives 1.34 times an even share.")
    (figure,) = _blocks(section, Figure)
    go.Figure(figure.spec)
    cells = figure.spec["data"][0]["z"]
    assert sum(map(sum, cells)) == 16 * 32 * 32 * 4 * 4 / 1024, (
        "32 tokens of 128 bytes: 4 ranks, 4 ways, 4 steps, in KiB"
    )
    assert figure.spec["data"][0]["zmin"] == 0 and figure.spec["data"][0]["zmax"] == max(map(max, cells))
    (grid,) = _blocks(section, Grid)
    assert grid.rows[0][0] == "rank 2" and grid.rows[0][-1] == "1.34 x"


def test_without_sizes_there_is_no_such_section(straggler: Any) -> None:
    assert exchange.section(straggler, straggler.tables) is None


def test_pairs_that_are_unknown_are_empty_and_names_stay_text() -> None:
    spec = matrix(["<b>a", "b"], [[1 << 21, None], [0, 3 << 20]])
    assert spec["data"][0]["z"] == [[2.0, None], [0.0, 3.0]]
    assert spec["data"][0]["colorbar"]["title"]["text"] == "MiB" and "<b>a" not in str(spec)
    go.Figure(matrix([], []))


def test_blame_that_is_spread_names_no_rank() -> None:
    share = {"rank": 8, "blamed_ns": 21_200, "blamed_ratio": 0.5, "last_count": 3, "judged_count": 14}
    assert waiting._lead([share]).startswith("No rank stands out: rank 8 has most of the blame, 21.2 us behind")
    assert waiting._lead([{**share, "blamed_ratio": 0.51}]).startswith("Rank 8 comes last in 3 of 14")


def test_bandwidth_axes_speak_of_bytes_in_binary_and_of_rates_plainly() -> None:
    layout = against_size([("all_gather", 96 << 20, 13.9e9, "x")], [])["layout"]
    assert layout["xaxis"]["ticktext"] == ["16 MiB", "128 MiB"]
    assert layout["yaxis"]["ticktext"] == ["5", "10", "20", "50"]
    go.Figure(against_size([], []))
