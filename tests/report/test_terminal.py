"""The one-screen summary: fits, says it in words alone, survives pipes and narrow windows."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from diagnose.findings import Diagnosis, Symptom
from diagnose.report import terminal
from diagnose.schema import INGESTED
from tests.report.example import example
from tests.report.example_run import HOSTILE

REPORT = Path("diagnose-report/report.html")


def _printed(diagnosis: Diagnosis, width: int = 80, **options: Any) -> str:
    out = io.StringIO()
    terminal.render(diagnosis, Console(file=out, width=width, highlight=False, **options), report=REPORT)
    return out.getvalue()


def _long() -> Diagnosis:
    """Every sentence far too long."""
    diagnosis = example(hostile=True)
    top = dataclasses.replace(
        diagnosis.findings[0], title="long title " * 40, summary="long summary " * 60, fix="long fix " * 90
    )
    symptoms = [
        dataclasses.replace(s, status="unknown", lost_ns=None, reason="because " * 50) for s in diagnosis.symptoms
    ]
    return dataclasses.replace(diagnosis, findings=[top, *diagnosis.findings[1:]], symptoms=symptoms)


@pytest.mark.parametrize("diagnosis", [example(), _long()], ids=["typical", "too long"])
@pytest.mark.parametrize("terminal_", [False, True])
def test_fits_a_screen_of_80_by_24(diagnosis: Diagnosis, terminal_: bool) -> None:
    options: dict[str, Any] = {"force_terminal": True, "no_color": True} if terminal_ else {}
    lines = _printed(diagnosis, **options).splitlines()

    assert len(lines) <= 23
    assert all(len(line) <= 80 for line in lines if "\x1b" not in line)


def test_a_coloured_terminal_gets_the_bar_and_still_fits() -> None:
    text = _printed(example(), force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={})
    assert len(text.splitlines()) <= 23
    assert "48;2;74;128;196" in text  # the colour of compute, as on the page


def test_says_verdict_facts_symptoms_step_quality_and_place() -> None:
    text = " ".join(_printed(example()).split())

    assert text.startswith(
        "Gradient reduction is not hidden under the backward pass: up to 11.8 ms (20.0 %) of every 59.0 ms step, "
        "up to 308 of 1,536 GPU-hours a day on 64 GPUs"
    )
    for said in (
        "Cause 6 reduce_scatter a step",
        "Step 59.0 ms (mean of 4 steps, 2 ranks) = 55.5 % compute + 20.0 % DP comm",
        "Next The host launches kernels late: up to 3.63 ms (6.1 %)",
        "found More GPUs made it slower up to 11.8 ms a step (20.0 %)",
        "unknown Out of memory despite headroom needs a memory snapshot",
        "Change Megatron-LM: --overlap-grad-reduce.",
        "Quality 2 inputs: 1 ok, 1 repaired; non finite number ×12",
        "Report diagnose-report/report.html",
    ):
        assert said in text


def test_the_longest_rank_is_named_where_the_mean_of_ranks_differs() -> None:
    """Losses are over its step: 12 ms of 20 ms must not seem to be of 15 ms."""
    rows = [
        {"rank": rank, "part": part, "dur_ns": ns}
        for rank, of_rank in ((0, {"compute": 40_000_000, "idle": 8_000_000}), (1, {"compute": 70_000_000}))
        for part, ns in of_rank.items()
    ]
    given = dataclasses.replace(example(), step_time={**example().step_time, "per_rank": rows})
    text = " ".join(_printed(given).split())
    assert "Step 59.0 ms (mean of 4 steps, 2 ranks; longest 70.0 ms) = 55.5 % compute" in text


def test_without_a_finding_the_first_error_of_a_log_is_said() -> None:
    """No rule judges it, but a log that ends in an error must not read as if nothing had been found in it."""
    rows = [
        {"level": "WARN", "detail": "no algorithm available for function Broadcast", "line": 25},
        {"level": "WARN", "detail": "something later", "line": 26},
        {"level": "INFO", "detail": "harmless", "line": 1},
    ]
    given = dataclasses.replace(
        example(), findings=[], step_time={}, window={}, tables={"log_events": INGESTED["log_events"].of_rows(rows)}
    )
    text = " ".join(_printed(given).split())
    assert "Log no algorithm available for function Broadcast (line 25, first of 2; no rule judges it)" in text
    assert "Idle" not in text  # nothing of the device was recorded: one line says so
    assert "Log " not in " ".join(_printed(dataclasses.replace(given, tables={})).split())


def test_a_pipe_gets_plain_text() -> None:
    text = _printed(_long())

    assert "\x1b" not in text and "\u202e" not in text
    assert not set(text) & set("─│┌┐└┘━┃╭╮╰╯")


@pytest.mark.parametrize("width", [30, 40, 60])
def test_narrow_windows_do_not_wrap(width: int) -> None:
    lines = _printed(example(), width=width).splitlines()

    assert all(len(line) <= width for line in lines if "report.html" not in line)
    assert any(line.startswith("unknown") for line in lines)


def test_nothing_found_says_what_is_healthy_and_what_to_collect() -> None:
    symptoms = [
        Symptom(
            s.symptom,
            "clear" if i < 2 else "unknown",
            None,
            None,
            None,
            "" if i < 2 else "not seen; needed: traces of all ranks",
        )
        for i, s in enumerate(example().symptoms)
    ]
    text = _printed(dataclasses.replace(example(), findings=[], symptoms=symptoms))

    assert text.startswith("No problem found in what was recorded: 2 of 5 clear, 3 cannot be judged yet")
    assert "Collect  traces of all ranks" in text
    assert "Idle     device idle 17.2 %" in text


def test_markup_in_names_is_text() -> None:
    top = dataclasses.replace(example().findings[0], title="[red]x[/red] [link=http://a]", summary=HOSTILE[3])
    text = _printed(dataclasses.replace(example(), findings=[top]))

    assert text.startswith("[red]x[/red] [link=http://a]")


def test_verbose_lists_findings_and_skipped_rules() -> None:
    out = io.StringIO()
    terminal.render(example(), Console(file=out, width=80), verbose=True)
    text = " ".join(out.getvalue().split())

    assert "[pageable-copy]: about 700 us (1.2 %)" in text
    assert "skipped late-rank: needs traces of all ranks of a group; 2 of 64 were given" in text


def test_a_reason_that_names_no_file_is_not_shown_as_one() -> None:
    symptoms = [
        dataclasses.replace(s, status="unknown", lost_ns=None, lost_bytes=None, reason="nothing ran")
        for s in example().symptoms
    ]
    text = _printed(dataclasses.replace(example(), findings=[], symptoms=symptoms))

    assert "needs nothing ran" not in text and "Collect" not in text


def test_a_loss_without_steps_is_of_the_recording() -> None:
    without = dataclasses.replace(example(), step_time={**example().step_time, "parts": []})

    assert "up to 11.8 ms in all (20.0 %)" in " ".join(_printed(without).split())


def test_recordings_of_unknown_rank_are_not_called_ranks() -> None:
    rows = [{"rank": rank, "part": "compute", "dur_ns": 1} for rank in (-1, -2, -3)]
    unknown = dataclasses.replace(example(), step_time={**example().step_time, "per_rank": rows})

    assert "3 recordings)" in " ".join(_printed(unknown).split())
