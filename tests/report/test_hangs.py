"""The hang verdict: who holds the job up is named first, who waits is never the cause, no time is made up."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from rich.console import Console

from diagnose.analyses import hangs as analysis
from diagnose.report import findings, hangs, terminal
from diagnose.report._blocks import Grid
from diagnose.report._hang import RULE, did, rank_names
from diagnose.report._verdict import verdict
from tests import ask
from tests.report.example import example


@pytest.fixture(scope="module")
def hung() -> Any:
    return ask.run(ask.CASES / "G13")


def _titles(section: Any) -> dict[str, Grid]:
    return {b.title: b for b in section.blocks if isinstance(b, Grid)}


def _printed(diagnosis: Any) -> str:
    out = io.StringIO()
    terminal.render(diagnosis, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_the_headline_names_culprit_operation_group_and_number(hung: Any) -> None:
    answer = verdict(hung)
    assert answer.headline == "The job hangs: rank 2 never enqueued all_gather, call 4 of default_pg"
    assert answer.cost == "" and answer.worth == ""
    facts = dict(answer.facts)
    assert facts["Waiting"].startswith("ranks 0-1, 3; the time-outs they print")
    assert facts["Error"] == "rank 2: out of memory"
    assert "0 ns" not in _printed(hung) and "where the time went" not in _printed(hung)


def test_of_several_culprits_the_words_are_plural() -> None:
    row = {"role": "mismatched", "op": "all_reduce", "seq": 4, "group": "0", "description": None}
    assert did(row) == "called another operation than its peers: all_reduce, call 4 of group 0"
    assert did(row, 2) == "called another operation than their peers: all_reduce, call 4 of group 0"


def test_the_section_tells_culprits_waiters_standing_and_errors(hung: Any) -> None:
    section = hangs.section(hung, hung.tables)
    assert section is not None and section.lead.startswith("The job hangs: rank 2 never enqueued")
    grids = _titles(section)
    blamed = grids["Who is to blame"].rows
    assert [row[0] for row in blamed] == ["rank 2"] and blamed[0][3:6] == ["3", "3", "4"]
    (waiting,) = grids["Who only waits"].rows
    assert waiting[0].shown == "ranks 0-1, 3" and waiting[1] == "all_gather, call 4 of default_pg"
    stood = grids["How far the ranks of default_pg (0) got, the last first"].rows
    assert [row[0].shown for row in stood] == ["rank 2", "ranks 0-1, 3"]
    assert [row[0] for row in grids["Watchdogs that gave up waiting"].rows] == ["rank 0", "rank 1", "rank 3"]
    assert [row[0] for row in grids["First error of each rank in the logs"].rows] == ["rank 2"]


def test_without_a_time_out_the_dumps_do_not_prove_a_hang(hung: Any) -> None:
    quiet = dataclasses.replace(hung, tables={k: v for k, v in hung.tables.items() if k != "log_events"})
    assert verdict(quiet).headline.startswith("Stuck when the dumps were written: rank 2 never")
    bare = dataclasses.replace(hung, tables={})
    assert verdict(bare).headline == "Ranks wait in a collective that does not finish"


def test_time_outs_without_dumps_blame_nobody(hung: Any) -> None:
    logs = {k: v for k, v in hung.tables.items() if k in ("log_events", "files")}
    section = hangs.section(dataclasses.replace(hung, tables=logs, findings=[]), logs)
    assert section is not None and "for whom is unknown: give flight recorder dumps" in section.lead
    assert "Who is to blame" not in _titles(section)


def test_all_entered_means_nobody_is_at_fault(hung: Any) -> None:
    row = {"group": "7", "description": "dp", "seq": 9, "op": "all_reduce", "role": "entered", "culprit": False}
    rows = [row | {"rank": r} for r in range(3)]
    table = analysis.SCHEMA.build({c: [r.get(c) for r in rows] for c in analysis.SCHEMA.arrow.names})
    finding = dataclasses.replace(hung.findings[0], severity="warning", evidence={}, ranks=())
    stood = dataclasses.replace(hung, tables={"hangs": table}, findings=[finding])
    answer = verdict(stood)
    assert answer.headline == "All 3 ranks had entered all_reduce, call 9 of dp and none had finished it"
    assert dict(answer.facts)["Blame"].startswith("no rank")
    section = hangs.section(stood, stood.tables)
    assert section is not None and "Who had entered it" in _titles(section)


def test_a_hang_stands_before_what_costs_time(hung: Any) -> None:
    stuck = next(f for f in hung.findings if f.rule == RULE)
    both = dataclasses.replace(example(), findings=[*example().findings, stuck])
    assert verdict(both).rule == RULE
    assert dict(verdict(both).facts)["Next"].startswith("Gradient reduction is not hidden")
    assert findings.section(both, {}).blocks[0].anchor == f"finding-{RULE}"  # type: ignore[union-attr]


def test_a_finding_without_measured_time_says_so() -> None:
    socket = dataclasses.replace(example().findings[0], lost_ns=0, lost_ratio=None)
    bare = dataclasses.replace(example(), findings=[socket], step_time={"parts": []}, window={"parts": []}, tables={})
    answer = verdict(bare)
    assert answer.cost == "" and dict(answer.facts)["Cost"].startswith("unknown: no time was recorded")
    memory = dataclasses.replace(socket, lost_bytes=2 << 30)
    answer = verdict(dataclasses.replace(bare, findings=[memory]))
    assert answer.cost == "up to 2.00 GiB" and [label for label, _ in answer.facts] == ["Cause"]


def test_neither_dumps_nor_time_outs_no_section() -> None:
    assert hangs.section(example(), example().tables) is None


def test_unknown_ranks_have_no_negative_numbers() -> None:
    assert rank_names([3, -1, 0, 1]) == "ranks 0-1, 3 and 1 of unknown rank" and rank_names([5]) == "rank 5"
