"""Records of step lines as rows of `series`: what is printed twice, where a run began anew, which format counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest._moments import Moments
from diagnose.ingest.text._training_pairs import UNKNOWN_RANK, Ints, Pairs
from diagnose.schema import INGESTED

SAME_TIME_RATIO = 0.01
"""Bars of processes of one job differ by rounding; of another epoch or run by more (a guess)."""


def joined(parts: list[Pairs]) -> tuple[Pairs, int]:
    """All blocks of one format as one, and how many records had to be counted because no step is printed."""
    names: dict[str, int] = {}
    records, codes, first = [], [], 0
    for part in parts:
        renumber = np.array([names.setdefault(name, len(names)) for name in part.names], np.int64)
        codes.append(renumber[part.name] if len(part.name) else part.name)
        records.append(part.record + first)
        first += len(part.line)
    step = np.concatenate([p.step for p in parts])
    rank = np.concatenate([p.rank for p in parts])
    missing = step < 0
    if missing.all() and len(step):
        step = np.arange(1, len(step) + 1)
    return Pairs(
        np.concatenate([p.line for p in parts]), step, rank, np.concatenate(records), list(names),
        np.concatenate(codes), np.concatenate([p.value for p in parts]),
        Moments(*(np.concatenate(columns) for columns in zip(*(p.when for p in parts), strict=True))),
    ), int(missing.sum())  # fmt: skip


def segments(found: Pairs, resumed: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Which records are no repetition, and the segment of each.

    A record that follows its own step is a repetition (several processes print, a bar is drawn anew), and so is one
    whose step and values were all printed before, unless training was resumed in between. Any other step back, and a
    resumption at or behind the last step, begins a new segment.
    """
    count = len(found.step)
    kept, segment = found.step >= 0, np.zeros(count, np.int64)
    drawn = np.random.default_rng(7).random(len(found.names) + 1)
    mark = np.zeros(count)
    np.add.at(mark, found.record, np.nan_to_num(found.value, nan=1.5, posinf=2.5, neginf=3.5) * drawn[found.name])
    for rank in np.unique(found.rank):
        mine = np.flatnonzero((found.rank == rank) & kept)
        step, line = found.step[mine], found.line[mine]
        since = np.searchsorted(resumed, line)
        # Composer and dictionaries print one metric a line: a record there is not a whole step.
        back = np.diff(step) < 0
        again = np.flatnonzero(np.diff(step) == 0) + 1
        again = again[since[again] == since[again - 1]]
        if back.any():
            key = np.stack([since.astype(np.float64), step.astype(np.float64), mark[mine]], axis=1)
            _, first = np.unique(key, axis=0, return_index=True)
            kept[np.delete(mine, first)] = False
        if found_whole(found):
            kept[mine[again]] = False
        left = np.flatnonzero(kept[mine])
        step, since = step[left], since[left]
        anew = np.concatenate(([False], (np.diff(step) < 0) | ((np.diff(since) > 0) & (np.diff(step) <= 0))))
        segment[mine[left]] = np.cumsum(anew)
        if "bar_step_time_ns" in found.names:
            _other_processes(found, kept, segment, mine[left])
    return kept, segment


def _other_processes(found: Pairs, kept: npt.NDArray[np.bool_], segment: Ints, mine: Ints) -> None:
    """Bars of several processes written one after the other look like restarts, but their times are the same."""
    rate = np.isin(found.name, [found.names.index(n) for n in ("bar_step_time_ns", "other_progress_time_ns")])
    times = np.full(len(found.step), np.nan)
    times[found.record[rate]] = found.value[rate]
    numbers = np.unique(segment[mine])
    first = mine[segment[mine] == numbers[0]]
    for number in numbers[1:].tolist():
        other = mine[segment[mine] == number]
        _, a, b = np.intersect1d(found.step[first], found.step[other], return_indices=True)
        apart = np.abs(times[first[a]] / times[other[b]] - 1)
        if len(a) and np.nanmedian(apart) < SAME_TIME_RATIO:
            kept[other] = False


def found_whole(found: Pairs) -> bool:
    """Whether a line is a whole record, not one metric of it."""
    return len(found.record) == 0 or len(found.names) == 1 or len(found.record) > len(found.step)


def series(found: Pairs, kept: npt.NDArray[np.bool_], segment: Ints) -> pa.Table:
    """Rows of `series` of the records that were kept."""
    mine = kept[found.record]
    record = found.record[mine]
    printed = found.rank[record].astype(np.int32)
    rank = np.ma.array(printed, mask=printed == UNKNOWN_RANK, shrink=False)
    names = pa.DictionaryArray.from_arrays(
        pa.array(found.name[mine].astype(np.int32)), pa.array(found.names, pa.string())
    )
    return INGESTED["series"].build(
        {"rank": rank, "step": found.step[record], "metric": names, "value": found.value[mine],
         "segment": segment[record].astype(np.int32)}
    )  # fmt: skip


def step_ends(found: Pairs, kept: npt.NDArray[np.bool_], segment: Ints) -> pa.Table:
    """When each record that was kept was printed, where its line says."""
    mine = kept & found.when.known
    rank = np.ma.array(found.rank[mine].astype(np.int32), mask=found.rank[mine] == UNKNOWN_RANK, shrink=False)
    return INGESTED["step_ends"].build(
        {"rank": rank, "step": found.step[mine], "segment": segment[mine].astype(np.int32),
         "ts_ns": found.when.ts_ns[mine], "zoned": found.when.zoned[mine]}
    )  # fmt: skip


def together(parts: list[pa.Table]) -> pa.Table:
    """Rows of all formats, best first; where two give one metric at one step, the first stays.

    A bar's smoothed time is the step time only where nothing better is printed.
    """
    taken: dict[str, Ints] = {}
    kept = []
    for part in parts if len(parts) > 1 else ():
        names, code = part["metric"].combine_chunks().dictionary.to_pylist(), _codes(part)
        step = np.asarray(part["step"])
        stays = np.ones(len(step), bool)
        for number in np.unique(code).tolist():
            mine = code == number
            steps = np.unique(step[mine])
            before = taken.get(names[number], steps[:0])
            if len(np.intersect1d(before, steps)):
                stays[mine] = False
            taken[names[number]] = np.union1d(before, steps)
        table = part.filter(pa.array(stays))
        kept.append(
            table.set_column(table.schema.get_field_index("metric"), "metric", table["metric"].cast(pa.string()))
        )
    if not kept:
        kept = [
            p.set_column(p.schema.get_field_index("metric"), "metric", p["metric"].cast(pa.string())) for p in parts
        ]
    found = pa.concat_tables(kept)
    metric = found["metric"]
    if pc.any(pc.equal(metric, "bar_step_time_ns")).as_py():
        exact = pc.any(pc.is_in(metric, pa.array(["step_time_ns", "tokens_per_s_per_gpu", "samples_per_s"]))).as_py()
        if not exact:
            metric = pc.if_else(pc.equal(metric, "bar_step_time_ns"), "step_time_ns", metric)
    return found.set_column(
        found.schema.get_field_index("metric"), "metric", metric.cast(pa.dictionary(pa.int32(), pa.string()))
    )


def _codes(part: pa.Table) -> Ints:
    return np.asarray(part["metric"].combine_chunks().indices, np.int64)
