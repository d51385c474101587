"""Step after step, and rank beside rank: does the cost sit in every step, or in some?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report import _figures
from diagnose.report._blocks import Block, Figure, Section
from diagnose.report._parts import in_order
from diagnose.report._text import rank_name
from diagnose.report._totals import flat
from diagnose.units import show

ORDER = 40
MOST_STEPS = 200
MOST_RANKS = 64


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no steps are known."""
    blocks: list[Block] = []
    lead = ""
    found = tables.get("step_time")
    if found is not None and found.num_rows:
        figure, lead = _over_steps(flat(found, ["rank", "step", "part", "dur_ns"]))
        blocks.append(figure)
    per_rank = diagnosis.step_time.get("per_rank") or diagnosis.window.get("per_rank") or []
    if len({row["rank"] for row in per_rank}) > 1:
        blocks.append(_over_ranks(per_rank, "step" if diagnosis.step_time.get("per_rank") else "recording"))
    return Section("steps", "Steps and ranks", blocks, lead) if blocks else None


def _over_steps(found: pa.Table) -> tuple[Figure, str]:
    rank, step, dur = (found[c].to_numpy() for c in ("rank", "step", "dur_ns"))
    pairs, where = np.unique(np.stack([step, rank], axis=1), axis=0, return_inverse=True)
    totals = np.zeros(len(pairs), np.int64)
    np.add.at(totals, where.ravel(), dur)
    order = np.lexsort((-totals, pairs[:, 0]))
    _, first = np.unique(pairs[order, 0], return_index=True)
    longest = order[first]  # one (step, rank) pair per step: the rank that took longest
    shown = longest[-MOST_STEPS:]
    parts = found["part"].to_pylist()
    durations: dict[str, Any] = {
        str(p["part"]): np.zeros(len(shown), np.int64) for p in in_order([{"part": p} for p in set(parts)])
    }
    place = {int(pair): i for i, pair in enumerate(shown)}
    for row in np.flatnonzero(np.isin(where.ravel(), shown)):
        durations[parts[row]][place[int(where.ravel()[row])]] += dur[row]
    several = len(np.unique(rank)) > 1
    hover = [f"{rank_name(pairs[i, 1])}, step {show('_ns', int(totals[i]))}" for i in shown]
    spec = _figures.stacked([str(pairs[i, 0]) for i in shown], durations, "step", hover)
    low, middle, high = (int(v) for v in np.percentile(totals[longest], (0, 50, 100)))
    spread = f"shortest {show('_ns', low)}, median {show('_ns', middle)}, longest {show('_ns', high)}"
    lead = f"{len(longest):,} steps: {spread}{', each on its longest rank' if several else ''}."
    note = f"The last {MOST_STEPS} of {len(longest):,} steps." if len(longest) > MOST_STEPS else ""
    return Figure("Every step" + (", longest rank" if several else ""), spec, 340, lead, note), lead


def _over_ranks(per_rank: list[dict[str, Any]], whole: str) -> Figure:
    totals: dict[int, int] = {}
    for row in per_rank:
        totals[row["rank"]] = totals.get(row["rank"], 0) + row["dur_ns"]
    ranks = sorted(totals)
    if len(ranks) > MOST_RANKS:
        by_time = sorted(ranks, key=lambda r: totals[r])
        ranks = sorted({*by_time[: MOST_RANKS // 2], *by_time[-MOST_RANKS // 2 :]})
    place = {r: i for i, r in enumerate(ranks)}
    durations: dict[str, list[int]] = {str(p["part"]): [0] * len(ranks) for p in in_order(per_rank)}
    for row in per_rank:
        if row["rank"] in place:
            durations[row["part"]][place[row["rank"]]] += row["dur_ns"]
    hover = [f"{whole} {show('_ns', totals[r])}" for r in ranks]
    most, least = (f(totals, key=lambda r: totals[r]) for f in (max, min))
    ends = (f"{rank_name(r)}, {show('_ns', totals[r])}" for r in (most, least))
    alt = "Longest: {}; shortest: {}.".format(*ends)
    note = (
        f"The {MOST_RANKS // 2} shortest and {MOST_RANKS // 2} longest of {len(totals):,} ranks."
        if len(totals) > MOST_RANKS
        else ""
    )
    waiting = "Time waited is not time caused: a rank that others wait for shows little communication itself."
    return Figure(
        f"Mean {whole} of each rank",
        _figures.stacked([rank_name(r).removeprefix("rank ") for r in ranks], durations, "rank", hover),
        340,
        alt,
        f"{note} {waiting}".strip(),
    )
