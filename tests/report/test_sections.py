"""Values on the page: sums, shares, bounds, words for what is unknown. No HTML here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from diagnose.analyses import collectives, gemms, mfu, steps
from diagnose.findings import Diagnosis, Finding, Symptom
from diagnose.report import communication, efficiency, findings, quality, rules, timeline, verdict, waterfall
from diagnose.report._blocks import Cards, Facts, Figure, Grid, Headline, Offence, Share, columns, known
from diagnose.report._parts import PARTS_SHOWN, part
from diagnose.report._text import clean, first_sentences, name, plotly, rank_name, shorten, words
from diagnose.report._verdict import communication as comm_words
from diagnose.report._verdict import loss, needed, share, worth
from diagnose.schema import PARTS
from tests.report.example import example


def _with(**changes: Any) -> Diagnosis:
    return dataclasses.replace(example(), **changes)


def _block(section: Any, kind: type) -> Any:
    return next(b for b in section.blocks if isinstance(b, kind))


def _found(**changes: Any) -> Finding:
    return dataclasses.replace(example().findings[0], **changes)


def test_every_part_has_words_and_a_colour_of_its_family() -> None:
    assert set(PARTS) <= set(PARTS_SHOWN)
    labels = [PARTS_SHOWN[p].label for p in PARTS]
    assert len(set(labels)) == len(labels)
    assert part("tp_wait").colour == part("tp_transfer").colour == part("tp_comm").colour
    assert part("tp_wait").hatched and not part("tp_transfer").hatched
    assert part("of_next_year").label == "of_next_year"


def test_waterfall_sums_to_the_step() -> None:
    diagnosis = example()
    section = waterfall.section(diagnosis, diagnosis.tables)
    assert section is not None
    bar = _block(section, Figure).spec["data"][0]
    total_ms = sum(p["dur_ns"] for p in diagnosis.step_time["parts"]) / 1e6

    assert bar["x"][-1] == pytest.approx(total_ms) == pytest.approx(sum(bar["x"][:-1]))
    ends = [base + x for base, x in zip(bar["base"][:-1], bar["x"][:-1], strict=True)]
    assert bar["base"][1:-1] == pytest.approx(ends[:-1])
    assert bar["text"][0] == "32.8 ms · 55.5 %"


def test_without_steps_the_recording_is_shown_and_said_to_be_one() -> None:
    none = {"steps_count": 0, "median_ns": None, "parts": [], "per_rank": [], "hidden_comm_ratio": None,
            "comm_share_ratio": None}  # fmt: skip
    diagnosis = _with(step_time=none)
    section = waterfall.section(diagnosis, diagnosis.tables)

    assert section is not None
    assert section.lead.startswith("236 ms (recording) = ")
    headline = _block(verdict.section(diagnosis, diagnosis.tables), Headline)
    assert headline.cost == "up to 11.8 ms (20.0 %) of the 59.0 ms recording"


def test_headline_is_the_costliest_finding_that_is_not_mere_information() -> None:
    small = _found(severity="info", title="an aside", lost_ns=10**12)
    headline = _block(verdict.section(_with(findings=[small, *example().findings]), {}), Headline)

    assert headline.tone == "found"
    assert headline.text == "Gradient reduction is not hidden under the backward pass"
    assert headline.cost == "up to 11.8 ms (20.0 %) of every 59.0 ms step"
    assert headline.worth == "up to 308 of 1,536 GPU-hours a day on 64 GPUs"
    assert [label for label, _ in headline.facts] == ["Cause", "Step", "Next"]


def test_simulated_losses_are_about_and_bounds_are_up_to() -> None:
    assert loss(_found(lost_ns=2_000_000, lost_ratio=0.1, lost_kind="simulated")) == "about 2.00 ms (10.0 %)"
    assert loss(_found(lost_ns=2_000_000, lost_ratio=None)) == "up to 2.00 ms"
    assert loss(_found(lost_ns=0, lost_bytes=2**31)) == "up to 2.00 GiB"
    assert loss(_found(lost_ns=0, lost_bytes=0)) == ""


def test_hours_are_of_ranks_where_no_gpu_is_known() -> None:
    job = example().job | {"world_size": 4, "gpu": None}
    assert worth(_with(job=job), _found(lost_ratio=0.5)) == "up to 48 of 96 rank-hours a day on 4 ranks"


def test_no_gpu_hours_where_the_size_of_the_job_is_unknown() -> None:
    job = example().job | {"world_size": None}
    assert worth(_with(job=job), _found()) == ""
    assert (
        worth(_with(job=job | {"world_size": 1}), _found(lost_ratio=0.25)) == "up to 6.0 of 24 GPU-hours a day on 1 GPU"
    )


@pytest.mark.parametrize(
    ("statuses", "tone", "words_"),
    [
        ("ccccc", "clear", "Healthy: all five symptoms are clear"),
        ("cuucu", "clear", "No problem found in what was recorded: 2 of 5 clear, 3 cannot be judged yet"),
        ("uuuuu", "unknown", "What was recorded cannot answer any of the five questions"),
    ],
)
def test_verdict_without_findings(statuses: str, tone: str, words_: str) -> None:
    names = {"c": "clear", "u": "unknown"}
    symptoms = [
        Symptom(s.symptom, names[c], None, None, None, "not seen; needed: collect X" if c == "u" else "")
        for s, c in zip(example().symptoms, statuses, strict=True)
    ]
    headline = _block(verdict.section(_with(findings=[], symptoms=symptoms), {}), Headline)

    assert (headline.tone, headline.text) == (tone, words_)
    assert headline.change == ("collect X" if "u" in statuses else "")


def test_unknown_ratios_are_words() -> None:
    step_time = example().step_time | {"hidden_comm_ratio": None, "comm_share_ratio": None}
    assert comm_words(_with(step_time=step_time)) == "how much communication is hidden is unknown"
    assert share(1, 10**6) == "<0.1 %" and share(0, 10**6) == "0.0 %"


def test_cards_show_cost_or_what_would_settle() -> None:
    cards = {
        title: (tag.text, cost, text) for tag, title, cost, text in _block(verdict.section(example(), {}), Cards).cards
    }

    assert cards["More GPUs made it slower"] == ("found", "up to 11.8 ms a step (20.0 %)", "unhidden-gradients")
    assert cards["Out of memory despite headroom"][0] == "unknown"
    assert "memory snapshot" in cards["Out of memory despite headroom"][2]


def _collectives(**columns: Any) -> dict[str, pa.Table]:
    fixed: dict[str, Any] = {"rank": 0, "step": 1, "op": "all_gather", "dim": "dp", "group": "1", "module": None}
    count = len(next(iter(columns.values())))
    marks = {"rank": [0], "step": [1], "ts_ns": [0], "dur_ns": [10**7]}
    return {
        "collectives": collectives.SCHEMA.build({k: [v] * count for k, v in fixed.items()} | columns),
        "steps": steps.SCHEMA.build(marks),
    }


def _comm_row(tables: dict[str, pa.Table]) -> dict[str, Any]:
    section = communication.section(example(), tables)
    assert section is not None
    grid: Grid = _block(section, Grid)
    return dict(zip([title for title, _ in grid.columns], grid.rows[0], strict=True))


def test_communication_sums_and_marks_lower_bounds() -> None:
    row = _comm_row(
        _collectives(
            dur_ns=[10**6, 3 * 10**6], hidden_ns=[10**6, 0], exposed_ns=[0, 3 * 10**6], size_bytes=[2**20, 3 * 2**20],
            busbw_bytes_per_s=[4e9, 8e9], bandwidth_bound=["lower"] * 2, blocked_by=[None, "stream_wait"],
        )
    )  # fmt: skip

    assert row["Total"] == "4.00 ms" and row["Hidden"] == "1.00 ms"
    assert row["Exposed"] == Share("3.00 ms", 1.0, "comm")
    assert row["Mean size"] == "2.00 MiB"
    assert row["Bus bandwidth"] == "≥ 7.00 GB/s"  # (4 x 1 ms + 8 x 3 ms) / 4 ms
    assert row["Not hidden because"] == "compute stream waits for it"


def test_unknown_sizes_stay_unknown() -> None:
    row = _comm_row(_collectives(dur_ns=[5], hidden_ns=[0], exposed_ns=[5]))

    assert row["Mean size"] == row["Bus bandwidth"] == "unknown"
    assert "Module" not in row  # a column of which nothing is known is left out, and the table says so


def test_totals_are_per_step_and_leave_out_what_is_outside() -> None:
    tables = _collectives(dur_ns=[10, 30, 999], hidden_ns=[0] * 3, exposed_ns=[10, 30, 999], step=[1, 2, None])
    tables["steps"] = steps.SCHEMA.build({"rank": [0, 0], "step": [1, 2], "ts_ns": [0, 50], "dur_ns": [50, 50]})
    section = communication.section(example(), tables)

    assert section is not None
    assert section.lead == "20 ns exposed of 20 ns of communication, per step of a rank (100.0 %)."


def test_mfu_is_refused_with_its_reason_and_never_zero() -> None:
    table = mfu.SCHEMA.build({"rank": [0], "step": [1], "dur_ns": [10], "mfu_ratio": [None], "reason": ["unknown GPU"]})
    section = efficiency.section(example(), {"mfu": table, "gemms": gemms.SCHEMA.empty()})

    assert section is not None
    assert section.lead.startswith("No MFU: unknown GPU. No operator shapes were recorded")
    assert dict(_block(section, Facts).items)["MFU of recorded operators"] == "unknown"


def test_efficiency_above_the_peak_is_not_shown() -> None:
    one = {
        "rank": [0],
        "op": ["aten::mm"],
        "m": [8],
        "n": [8],
        "k": [8],
        "batch": [1],
        "dtype": ["bfloat16"],
        "dur_ns": [1],
    }
    table = gemms.SCHEMA.build(one | {"work_flop": [1024.0], "peak_flop_per_s": [1e9]})
    section = efficiency.section(example(), {"gemms": table})

    assert section is not None
    assert _block(section, Grid).rows[0][-1] == Share("unknown", None)


def test_timeline_takes_the_longest_complete_step_of_every_rank() -> None:
    diagnosis = example()
    section = timeline.section(diagnosis, diagnosis.tables)

    assert section is not None
    assert section.lead.startswith("Step 5, the longest, 60.3 ms on rank 1.")
    figures = [b for b in section.blocks if isinstance(b, Figure)]
    assert [f.title for f in figures] == ["Rank 1", "Rank 0"]
    ranges = [f.spec["layout"]["xaxis"]["range"] for f in figures]
    assert ranges == [[0, 60.3]] * 2  # one scale: lengths compare by eye


def test_findings_show_evidence_in_units() -> None:
    offence: Offence = _block(findings.section(example(), {}), Offence)

    assert dict(offence.evidence)["exposed"] == "11.8 ms"
    assert dict(offence.evidence)["size"] == "64.0 MiB"
    assert dict(offence.facts)["Ranks"] == "0-1" and dict(offence.facts)["Confidence"] == "50.0 %"
    assert offence.cost == "up to 11.8 ms (20.0 %) a step"


def test_skipped_rules_say_what_is_missing() -> None:
    section = rules.section(example(), {})

    assert section is not None
    assert section.lead == "7 rules: 3 found, 2 clear, 2 skipped."
    assert [row[0].shown for row in _block(section, Grid).rows] == ["fragmentation", "late-rank"]


def test_quality_lists_counts_and_places() -> None:
    grid = [b for b in quality.section(example(), {}).blocks if isinstance(b, Grid)][1]

    assert [cell if isinstance(cell, str) else cell.shown for cell in grid.rows[0]][:5] == [
        "non finite number", "run/rank1.pt.trace.json.gz", "1", "12", "1,048,576",
    ]  # fmt: skip
    assert grid.rows[1][4] == ""


def test_text_is_cleaned_shortened_and_taken_literally() -> None:
    assert clean("a\tb\nc\x1b[31m\u202ed\ud800") == "a b c\ufffd[31m\ufffdd\ufffd"
    assert len(shorten("x" * 5000, 72)) == 72 and shorten("begin" + "x" * 99 + "end", 20).endswith("xxend")
    assert plotly("<b>&lt;") == "&lt;b&gt;&amp;lt;"
    assert (words("exposed_ns"), words("bus_bytes_per_s"), words("calls_count")) == ("exposed", "bus", "calls")


def test_columns_of_which_nothing_is_known_are_named_instead() -> None:
    rows = [[name("gemm"), name(None)], [name("copy"), name("")]]
    grid = known(Grid("t", columns("Kernel", "Source"), rows, "3 more."))

    assert [title for title, _ in grid.columns] == ["Kernel"] and [len(r) for r in grid.rows] == [1, 1]
    assert grid.more == "3 more. Not recorded: source."
    rows[1][1] = name("train.py(3): f")
    assert known(Grid("t", columns("Kernel", "Source"), rows)).columns == columns("Kernel", "Source")


def test_the_first_change_is_whole_sentences() -> None:
    text = "Set A=1, e.g. by hand. Then B. Then a long one follows."
    assert first_sentences(text, 30) == "Set A=1, e.g. by hand. Then B."
    assert first_sentences(text, 1000) == text
    assert first_sentences("one two three four", 10) == "one two …"


def test_a_rank_without_evidence_is_never_a_number() -> None:
    assert (rank_name(0), rank_name(-2)) == ("rank 0", "unknown rank 2")
    offence: Offence = _block(
        findings.section(_with(findings=[_found(ranks=(-1, 0, 1), evidence={"rank": -1})]), {}), Offence
    )
    assert dict(offence.facts)["Ranks"] == "0-1, unknown"
    assert dict(offence.evidence)["rank"] == "unknown"


def test_unknown_symptoms_say_only_what_to_collect() -> None:
    symptom = Symptom("moe_drop", "unknown", None, None, None, "nothing settles it; needed: a router log")
    assert needed(symptom) == "needs a router log"
    assert needed(dataclasses.replace(symptom, reason="kernels of unknown kind")) == "kernels of unknown kind"
