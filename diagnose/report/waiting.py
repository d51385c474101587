"""Who waits for whom: every shared call by rank, the pairs, and the clocks that the comparison rests on.

Time waited is not time caused: a dark row is a victim, a light row that the others' rows point at is the late rank.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import Diagnosis
from diagnose.report._blocks import Block, Figure, Grid, Section, Share, Text, columns
from diagnose.report._figures import height
from diagnose.report._figures_ranks import heat
from diagnose.report._text import clean, rank_name
from diagnose.report._totals import flat, totals
from diagnose.units import UNKNOWN, show

ORDER = 62
MOST_CALLS = 200
MOST_RANKS = 64
MOST_PAIRS = 20
MOST_OF_IT = 0.5
"""Of the blame, from which one rank is the late one, as in `late-rank`."""


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no call could be compared between ranks."""
    calls, arrivals = tables.get("collectives"), tables.get("arrivals")
    if calls is None or arrivals is None or not arrivals.num_rows:
        return None
    waits = calls.filter(pc.and_(pc.is_valid(calls["wait_ns"]), pc.is_valid(calls["match"])))
    if not waits.num_rows:
        return None
    late = sorted(tables["late_ranks"].to_pylist(), key=lambda r: (-r["blamed_ns"], r["rank"]))
    blocks: list[Block] = [_heat(waits, arrivals), _ranks(late), _pairs(waits, arrivals), _clocks(tables["clocks"])]
    blocks.append(Text("A rank that waits much is held up by another one; the late rank waits least.", quiet=True))
    return Section("waiting", "Who waits for whom", blocks, _lead(late))


def _lead(late: list[dict[str, Any]]) -> str:
    worst = late[0] if late else None
    if worst is None or not worst["blamed_ns"]:
        return "No rank comes last by more than the error of the clocks."
    behind = f"{show('_ns', worst['blamed_ns'])} behind the second last in all"
    if worst["blamed_ratio"] is not None and worst["blamed_ratio"] <= MOST_OF_IT:
        return (
            f"No rank stands out: {rank_name(worst['rank'])} has most of the blame, {behind},"
            f" {show('_ratio', worst['blamed_ratio'])} of what the job waits."
        )
    share = f" ({show('_ratio', worst['blamed_ratio'])} of what the job waits)" if worst["blamed_ratio"] else ""
    return (
        f"{rank_name(worst['rank']).capitalize()} comes last in {worst['last_count']:,} of {worst['judged_count']:,}"
        f" shared calls, {behind}{share}."
    )


def _heat(waits: pa.Table, arrivals: pa.Table) -> Figure:
    """The calls with most waiting, in order of time."""
    ranked = arrivals.sort_by([("waited_ns", "descending")]).slice(0, MOST_CALLS).sort_by("ts_ns")
    shown = flat(ranked, ["match", "op", "dim", "size_bytes"]).to_pylist()
    place = {row["match"]: i for i, row in enumerate(shown)}
    rows = flat(waits, ["match", "rank", "wait_ns"]).filter(pc.is_in(waits["match"], ranked["match"].combine_chunks()))
    spent: dict[int, list[int | None]] = {}
    for match, rank, wait in zip(*(rows[c].to_pylist() for c in ("match", "rank", "wait_ns")), strict=True):
        spent.setdefault(rank, [None] * len(shown))[place[match]] = wait
    most = sorted(spent, key=lambda r: -sum(w or 0 for w in spent[r]))[:MOST_RANKS]
    ranks = sorted(most)
    names = [f"{i + 1}: {clean(row['op'])} {_size(row['size_bytes'])}" for i, row in enumerate(shown)]
    left = arrivals.num_rows - len(shown)
    note = f"The {len(shown):,} calls with most waiting; {left:,} more are not shown." if left > 0 else ""
    if len(spent) > len(ranks):
        note = f"{note} The {len(ranks)} ranks that wait most of {len(spent):,}.".strip()
    alt = f"Waiting of {len(ranks)} ranks in {len(shown)} shared calls."
    return Figure("Waiting by rank and call", heat([rank_name(r) for r in ranks], names, [spent[r] for r in ranks]),
                  max(220, height(len(ranks)) - 120), alt, note)  # fmt: skip


def _ranks(late: list[dict[str, Any]]) -> Grid:
    blamed = [row for row in late if row["last_count"] or row["waited_ns"]]
    whole = max((row["blamed_ns"] for row in blamed), default=0)
    heads = columns("Rank", ">Last in", ">Behind the second last", ">Others wait for it", ">Waits itself")
    rows = [
        [
            rank_name(row["rank"]),
            f"{row['last_count']:,} of {row['judged_count']:,}",
            Share(show("_ns", row["blamed_ns"]), row["blamed_ns"] / whole if whole else 0.0, "comm"),
            show("_ns", row["caused_wait_ns"]),
            show("_ns", row["waited_ns"]),
        ]
        for row in blamed[:MOST_PAIRS]
    ]
    more = f"{len(blamed) - MOST_PAIRS:,} more ranks." if len(blamed) > MOST_PAIRS else ""
    return Grid("Ranks by what they are blamed for, over the analysed steps", heads, rows, more)


def _pairs(waits: pa.Table, arrivals: pa.Table) -> Grid:
    told = flat(arrivals.filter(pc.is_valid(arrivals["last_rank"])), ["match", "last_rank"])
    both = flat(waits, ["match", "rank", "wait_ns"]).join(told, "match", join_type="inner")
    both = both.filter(pc.not_equal(both["rank"], both["last_rank"]))
    rows = totals(both, ["rank", "last_rank"], ["wait_ns"], order="wait_ns")
    heads = columns("Waits", "For", ">Calls", ">Waiting")
    cells = [
        [rank_name(r["rank"]), rank_name(r["last_rank"]), f"{r['calls']:,}", show("_ns", r["wait_ns"])]
        for r in rows[:MOST_PAIRS]
    ]
    left = len(rows) - MOST_PAIRS
    more = f"{left:,} more {'pair' if left == 1 else 'pairs'}." if len(rows) > MOST_PAIRS else ""
    return Grid("Who waits for whom, over the recording", heads, cells, more)


def _clocks(clocks: pa.Table) -> Grid | Text:
    """Clocks that had to be corrected; where none had to, one line."""
    known = [row for row in clocks.to_pylist() if row["offset_ns"] is not None]
    apart = [row for row in known if row["offset_ns"]]
    if not apart:
        error = show("_ns", max((row["error_ns"] for row in known), default=0))
        return Text(f"Clocks of the {len(known):,} ranks agree, to {error} at most, from the ends of shared calls.")
    heads = columns("Rank", "Reference", ">Correction", ">Known to", ">Shared calls")
    rows = [
        [
            rank_name(row["rank"]),
            rank_name(row["reference"]),
            show("_ns", row["offset_ns"]),
            show("_ns", row["error_ns"]),
            f"{row['shared_count']:,}",
        ]
        for row in apart[:MOST_PAIRS]
    ]
    more = f"{len(apart) - MOST_PAIRS:,} more ranks." if len(apart) > MOST_PAIRS else ""
    return Grid("Clocks, from the ends of shared calls", heads, rows, more)


def _size(size_bytes: int | None) -> str:
    return UNKNOWN if size_bytes is None else show("size_bytes", size_bytes)
