"""A hang in words: who holds the job up, in which call, and who only waits. Read from the `hangs` table.

The dumps say where ranks stood when they were written; that the job hung is said only where a watchdog gave up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis, Finding
from diagnose.report._text import clean, first_sentences, rank_name
from diagnose.units import ranges, show

RULE = "stuck-collective"
TIMED_OUT = "watchdog_timeout"
_DID = {
    "never_enqueued": "never enqueued {call}",
    "stuck_completing": "enqueued {call} and did not complete it",
    "mismatched": "called another operation than {their} peers: {call}",
    "no_dump": "left no dump, and the others wait in {call}",
    "entered": "had entered {call}",
    "waited": "waited in {call}",
}
Row = dict[str, Any]


def foremost(findings: Iterable[Finding]) -> list[Finding]:
    """The same findings, a job that does not go on first: it loses everything, though no time of a step."""
    return sorted(findings, key=lambda f: not (f.rule == RULE and f.severity == "critical"))


def headline(diagnosis: Diagnosis, finding: Finding | None = None) -> str:
    """Who is to blame for the hang and in which call, beginning with whom `finding` names; empty where unknown."""
    rows = _rows(diagnosis.tables)
    blamed = [row for row in rows if row["culprit"]]
    if not blamed:
        entered = [row for row in rows if row["role"] == "entered"]
        return f"All {len(entered)} ranks had entered {call(entered[0])} and none had finished it" if entered else ""
    named = {} if finding is None else finding.evidence
    first = min(blamed, key=lambda row: sum(row[k] != named.get(k) for k in ("rank", "role", "group", "seq")))
    alike = [r["rank"] for r in blamed if all(r[k] == first[k] for k in ("role", "group", "seq"))]
    others = {row["rank"] for row in blamed} - set(alike)
    more = f"; {rank_names(others)} {'is' if len(others) == 1 else 'are'} to blame, too" if others else ""
    when = "The job hangs" if timeouts(diagnosis.tables) else "Stuck when the dumps were written"
    return f"{when}: {rank_names(alike)} {did(first, len(alike))}{more}"


def facts(diagnosis: Diagnosis, finding: Finding) -> list[tuple[str, str]]:
    """Cause, who only waits, and what the logs say first."""
    found = [("Cause", clean(finding.summary))]
    rows = _rows(diagnosis.tables)
    blamed = {row["rank"] for row in rows if row["culprit"]}
    waiting = {row["rank"] for row in rows if not row["culprit"]} - blamed
    waiting |= {r for row in rows if row["culprit"] for r in row["waiting_ranks"] or ()} - blamed
    if not blamed:
        return [*found, ("Blame", "no rank: look at the network, NCCL and the GPUs")]
    if waiting:
        gave_up = {row["rank"] for row in timeouts(diagnosis.tables)} & waiting
        timed = "; the time-outs they print are the waiting, not the cause" if gave_up else ""
        found.append(("Waiting", f"{rank_names(waiting)}{timed}"))
    said = {row["rank"]: row["first_error"] for row in rows if row["culprit"] and row["first_error"]}
    words = [f"{rank_name(rank)}: {first_sentences(text, 160)}" for rank, text in said.items()]
    silent = f"no log gives an error of {rank_names(blamed)}"
    look = "look at what it did, and give its log" if len(blamed) == 1 else "look at what they did, and give their logs"
    return [*found, ("Error", "; ".join(words) if words else f"{silent}: {look}")]


def did(row: Row, ranks_count: int = 1) -> str:
    """What a rank did or left undone, or several alike, after their names."""
    their = "its" if ranks_count == 1 else "their"
    return _DID.get(row["role"], clean(row["role"]) + " {call}").format(call=call(row), their=their)


def call(row: Row) -> str:
    """`all_gather, call 4 of default_pg`, as far as it is known."""
    op = clean(row["op"]) if row["op"] else "a collective"
    which = f"call {row['seq']} of " if row["seq"] is not None else "in "
    return f"{op}, {which}{group(row)}"


def group(row: Row) -> str:
    """A group by its description, else its name."""
    return clean(row["description"] or f"group {row['group']}")


def rank_names(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`; ranks without evidence are counted as unknown."""
    known = sorted({r for r in ranks if r is not None and r >= 0})
    unknown = len({r for r in ranks if r is not None and r < 0})
    words = [f"rank{'s' * (len(known) > 1)} {ranges(known)}"] if known else []
    return " and ".join(words + ([f"{unknown} of unknown rank"] if unknown else []))


def timeouts(tables: Mapping[str, pa.Table]) -> list[Row]:
    """Messages of watchdogs that gave up on a collective."""
    events = tables.get("log_events")
    if events is None or not events.num_rows:
        return []
    kept = events.select(["rank", "file", "line", "kind", "detail"]).to_pylist()
    return [row for row in kept if row["kind"] == TIMED_OUT]


def size(row: Row) -> str:
    """Message size of the call."""
    return show("size_bytes", row["size_bytes"])


def _rows(tables: Mapping[str, pa.Table]) -> list[Row]:
    found = tables.get("hangs")
    return found.to_pylist() if found is not None else []
