"""Which ranks and steps the user wants to look at, applied to tables."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.errors import UsageError
from diagnose.schema import INGESTED, Tables
from diagnose.units import ranges


class Selection(NamedTuple):
    """Ranks to keep (None: all) and step numbers to keep, both ends in (None: all)."""

    ranks: frozenset[int] | None = None
    steps: tuple[int, int] | None = None


EVERYTHING = Selection()

ANOTHER_UNIT = 300
"""Typical kernels of two ranks of one job never differ by this factor; nanoseconds for microseconds give 1,000."""

MOST_RANKS = 1 << 20
"""Above the size of any job; a larger number is a slip of the hand."""

_WITHOUT_RANK = ("files", "quality", "settings")
"""Kept whole: they describe the inputs, not the selected part."""


def parse(ranks: str | None, steps: str | None) -> Selection:
    """Selection from `--ranks 0,4-7` and `--steps 3:5`. Raises UsageError on anything else."""
    return Selection(_ranks(ranks) if ranks else None, _steps(steps) if steps else None)


def _ranks(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) < int(low):
            raise UsageError(f"--ranks {text}: expected numbers and ranges such as 0,4-7")
        if int(high or low) >= MOST_RANKS:
            raise UsageError(f"--ranks {text}: no job has rank {high or low}; expected ranges such as 0,4-7")
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _steps(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    if not (low.isdecimal() and (high.isdecimal() or not colon)) or (colon and int(high) < int(low)):
        raise UsageError(f"--steps {text}: expected one step or a range such as 3:5 (both ends in)")
    return int(low), int(high) if colon else int(low)


def of_one_run(tables: Tables) -> Tables:
    """`tables` with only the events of one run: the one with the most documents, the first of equals.

    Runs are never judged together; `quality` names the others (`several_runs`), and each can be given by itself.
    """
    files = tables["files"]
    runs = [row["run"] for row in files.select(["run", "status"]).to_pylist() if row["status"] != "unusable"]
    if len(set(runs)) < 2:
        return dict(tables)
    kept = max(dict.fromkeys(runs), key=runs.count)
    inside = pa.array(
        [f for f, run in zip(files["file"].to_pylist(), files["run"].to_pylist(), strict=True) if run == kept]
    )
    result = {
        name: table.filter(pc.or_kleene(pc.is_in(table["file"], inside.cast(pa.int32())), pc.is_null(table["file"])))
        if "file" in table.column_names and name != "files"
        else table
        for name, table in tables.items()
    }
    quality = tables["quality"]
    known = pc.equal(quality["problem"].cast(pa.string()), "several_runs")  # what joining them said: one row is enough
    broken = pc.equal(files["status"].cast(pa.string()), "unusable")
    usable = files.filter(pc.and_(pc.equal(files["run"], kept), pc.invert(broken)))
    said = f"only run {kept} is analysed: {usable['path'][0]}"
    details = [detail for detail in quality.filter(known)["detail"].to_pylist() if detail]
    row = {"problem": "several_runs", "count": len(set(runs)), "detail": "; ".join([said, *details])}
    return {**result, "quality": _add(quality.filter(pc.invert(known)), row)}


def of_one_unit(tables: Tables) -> Tables:
    """`tables` without the events of ranks whose times are clearly in another unit than the other ranks' times.

    The ranks of a job run alike kernels; a typical one that takes hundreds of times as long is no straggler but a
    trace written in nanoseconds. Such a rank stays in `files`, with a `unit_mismatch` row that says so.
    """
    if "events" not in tables:
        return dict(tables)
    events = tables["events"]
    device = events.filter(pc.equal(events["kind"].cast(pa.string()), "kernel")).select(["rank", "dur_ns"])
    typical = device.group_by("rank").aggregate([("dur_ns", "approximate_median")]).to_pydict()
    of_rank = {r: t for r, t in zip(typical["rank"], typical["dur_ns_approximate_median"], strict=True) if t}
    if len(of_rank) < 2:
        return dict(tables)
    least = min(of_rank.values())
    odd = {rank: value / least for rank, value in of_rank.items() if value >= ANOTHER_UNIT * least}
    result = dict(tables)
    for rank, times in odd.items():
        said = f"its kernels take {times:,.0f} times as long as other ranks': another unit; left out of all figures"
        result = _without_rank(result, rank, said)
    return result


def _without_rank(tables: Tables, rank: int, said: str) -> Tables:
    files = tables["files"].to_pylist()
    paths = [row["path"] for row in files if row["rank"] == rank]
    for row in files:
        if row["rank"] == rank:
            row["status"], row["detail"] = "partial", said
    kept = {
        name: table.filter(pc.not_equal(table["rank"], rank).fill_null(True))
        if "rank" in table.column_names and name not in _WITHOUT_RANK
        else table
        for name, table in tables.items()
    }
    note = {"problem": "unit_mismatch", "path": paths[0], "rank": rank, "count": 1, "detail": said}
    schema = INGESTED["files"]
    rebuilt = schema.of_rows(files)
    return {**kept, "files": rebuilt, "quality": _add(_without_note(tables["quality"], rank), note)}


def _without_note(quality: pa.Table, rank: int) -> pa.Table:
    """What the file alone gave rise to suspect is now said with certainty."""
    said = pc.and_(pc.equal(quality["problem"].cast(pa.string()), "unit_mismatch"), pc.equal(quality["rank"], rank))
    return quality.filter(pc.invert(said.fill_null(False)))


def _add(quality: pa.Table, row: dict[str, object]) -> pa.Table:
    return pa.concat_tables([quality, INGESTED["quality"].of_rows([row])]).unify_dictionaries()


def of_ranks(tables: Tables, selected: Selection) -> Tables:
    """`tables` with only the rows of the selected ranks. UsageError where the inputs hold none of them."""
    if selected.ranks is None:
        return dict(tables)
    seen = {r for r in tables["files"]["rank"].to_pylist() if r is not None}
    for name, table in tables.items():
        if "rank" in table.column_names and name not in _WITHOUT_RANK:
            seen |= {r for r in pc.unique(table["rank"]).to_pylist() if r is not None}
    if seen and not seen & selected.ranks:
        known = ranges([r for r in seen if r >= 0])
        there = f"rank {known}" if known else "only files whose rank is unknown"
        asked = ranges(sorted(selected.ranks))
        raise UsageError(f"--ranks {asked}: not in these inputs, which hold {there}; leave it out")
    wanted = pa.array(sorted(selected.ranks), pa.int32())
    return {
        name: table.filter(pc.is_in(table["rank"], wanted))
        if "rank" in table.column_names and name not in _WITHOUT_RANK
        else table
        for name, table in tables.items()
    }


def of_steps(name: str, table: pa.Table, selected: Selection) -> pa.Table:
    """A derived table with only the rows of the selected steps.

    Only `steps`, `kernels` and `stage_work` are cut: everything after them is computed from what they hold, so the
    window becomes the selected part and parts still sum. UsageError where no step has such a number.
    """
    if selected.steps is None or name not in ("steps", "kernels", "stage_work"):
        return table
    low, high = selected.steps
    kept = table.filter(pc.and_(pc.greater_equal(table["step"], low), pc.less_equal(table["step"], high)))
    if not kept.num_rows and (name == "steps" or (name == "stage_work" and table.num_rows)):
        known = pc.unique(table["step"]).to_pylist()
        there = f"steps {ranges(known)}" if known else "no marked step"
        raise UsageError(f"--steps {low}:{high}: not in these inputs, which hold {there}; leave it out")
    return kept
