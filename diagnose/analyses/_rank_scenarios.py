"""Which fixes to replay on ranks that meet in collectives, and what each gains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, integers
from diagnose.analyses._dependency_graph import Times, replays
from diagnose.analyses._rank_graph import Ranks
from diagnose.analyses._rank_timeline import OWN_PARTS
from diagnose.schema import IDLE_CAUSES

REMOVABLE = (*IDLE_CAUSES, "copy")
CAUSES: dict[str, tuple[str, ...]] = {
    "compute": ("compute", "unclassified"),
    "input": ("input",),
    "gc": ("gc",),
    "begin": ("begin",),
    "copy": ("copy",),
    "host": ("alloc", "sync", "launch", "idle", "under_comm"),
}
"""Why a rank is late -> the parts of its own time that are longer."""
EVERY_STEP = tuple(part for part in OWN_PARTS if part != "begin")
"""How late a rank begins is there once, however many steps were recorded: it is no gain per step."""
_MOST_RANKS = 8
_MOST_EXPLAINED = 3

Row = dict[str, Any]


def rows_of(ranks: Ranks, calls: pa.Table) -> list[Row]:
    """Rows of `rank_what_if`, gains per step; of two replays of one fix, the one that gains more."""
    simulated = _ends(ranks, [ranks.duration])[0]
    per = ranks.steps_count
    row: Row = {"fixed": "nothing", "step_ns": round(simulated / per), "gain_ns": 0, "steps_count": per}
    row |= {"measured_ns": ranks.measured_ns // per, "error_ratio": abs(simulated / ranks.measured_ns - 1)}
    views = [_Cells(ranks, ranks.step), _Cells(ranks, ranks.interval)]
    found = _earliest(ranks, chain(_parts(ranks), _compared(ranks, views), _transfers(ranks, calls)))
    of_ranks = {said["rank"]: end for said, end in found if said["fixed"] == "rank"}
    explained = sorted(of_ranks, key=lambda rank: of_ranks[rank])[:_MOST_EXPLAINED]
    found += _earliest(ranks, _by_cause(ranks, views, explained))
    return [row] + [
        {**said, "step_ns": round(end / per), "gain_ns": round((simulated - end) / per)} for said, end in found
    ]


def _earliest(ranks: Ranks, scenarios: Iterable[tuple[Row, Times]]) -> list[tuple[Row, float]]:
    """Each fix and the end of the job with it; of several replays of one fix, the earliest."""
    said: list[Row] = []

    def durations() -> Iterator[Times]:
        for row, changed in scenarios:
            said.append(row)
            yield changed

    ends = _ends(ranks, durations())
    found: dict[tuple[Any, ...], tuple[Row, float]] = {}
    for row, end in zip(said, ends, strict=True):
        key = tuple(row.items())
        found[key] = row, min(end, found[key][1] if key in found else end)
    return list(found.values())


def _ends(ranks: Ranks, durations: Iterable[Times]) -> list[float]:
    """Replayed end of the job for each set of durations, ns."""
    return [end for ends in replays(ranks.layout, durations) for end in ends.max(axis=0).tolist()]


def _parts(ranks: Ranks) -> Iterator[tuple[Row, Times]]:
    """Each kind of idle taken from all ranks."""
    for part in REMOVABLE:
        spent = np.zeros(len(ranks.duration))
        spent[ranks.interval >= 0] = ranks.parts[:, OWN_PARTS.index(part)]
        if spent.any():
            yield {"fixed": "part", "part": part}, ranks.duration - spent


def _compared(ranks: Ranks, views: list[_Cells]) -> Iterator[tuple[Row, Times]]:
    """The ranks with most own time more than the others made like them; all ranks made equal, whole and by cause."""
    alike = [n for n in range(len(ranks.ranks)) if views[0].comparable(n)]
    worst = sorted(alike, key=lambda n: -max(view.excess(n) for view in views))[:_MOST_RANKS]
    for cells in views if alike else []:
        for n in worst:
            yield {"fixed": "rank", "rank": int(ranks.ranks[n])}, cells.like_others(n, EVERY_STEP)
        yield {"fixed": "balance"}, cells.balanced(EVERY_STEP)
        for cause, parts in CAUSES.items():
            yield {"fixed": "balance_part", "part": cause}, cells.balanced(parts)


def _by_cause(ranks: Ranks, views: list[_Cells], chosen: list[int]) -> Iterator[tuple[Row, Times]]:
    """Only one part of a rank's time made like the others'."""
    for cells in views:
        for rank in chosen:
            n = int(np.searchsorted(ranks.ranks, rank))
            for cause, parts in CAUSES.items():
                yield {"fixed": "rank_part", "part": cause, "rank": rank}, cells.like_others(n, parts)


def _transfers(ranks: Ranks, calls: pa.Table) -> Iterator[tuple[Row, Times]]:
    """No transfer takes time; and each group as fast as the median of its equals (dimension, operation, size)."""
    moving = ranks.call >= 0
    yield {"fixed": "transfer"}, np.where(moving, 0.0, ranks.duration)
    row = ranks.call[moving]
    group = codes(calls["group"])[row]
    kind = (codes(calls["dim"])[row] * 64 + codes(calls["op"])[row]) << 40
    kind = kind + np.minimum(integers(calls["size_bytes"], 0)[row], (1 << 40) - 1)
    names = dictionary(calls["group"])
    own = ranks.duration[moving]
    usual = _usual(kind, group, own)
    for one in np.unique(group[(group >= 0) & np.isfinite(usual) & (own > 1.1 * usual)]).tolist():
        changed = ranks.duration.copy()
        changed[moving] = np.where((group == one) & (own > usual), np.where(np.isfinite(usual), usual, own), own)
        yield {"fixed": "group", "group": names[one]}, changed


def _usual(kind: Ints, group: Ints, own: Times) -> Times:
    """Per call, the median over the other groups of their median of this kind; nan with fewer than two others."""
    pairs, index = np.unique(np.stack([kind, group]), axis=1, return_inverse=True)
    index = index.ravel()
    order = np.lexsort((own, index))
    first = np.searchsorted(index[order], np.arange(pairs.shape[1]))
    count = np.bincount(index)
    middle = own[order][first + (count - 1) // 2]
    usual = np.full(pairs.shape[1], np.nan)
    for one in np.unique(pairs[0]).tolist():
        mine = np.flatnonzero(pairs[0] == one)
        if len(mine) > 2:
            usual[mine] = [np.median(np.delete(middle[mine], i)) for i in range(len(mine))]
    return usual[index]


class _Cells:
    """Own time of every rank by part, in a step or between two calls, beside that of ranks that make the same calls.

    Between calls is where a rank met the others; but a call queued behind one that waits starts late, and what the rank
    worked until then counts before it. Over a step the sums are right, and where the time was is not looked at.
    """

    def __init__(self, ranks: Ranks, place: Ints) -> None:
        self.ranks = ranks
        self.own: Flags = place >= 0
        width = int(place.max()) + 1
        self.key = ranks.rank[self.own] * width + place[self.own]
        count = len(ranks.ranks)
        self.part = ranks.parts
        sums = [np.bincount(self.key, self.part[:, p], count * width) for p in range(len(OWN_PARTS))]
        self.typical: dict[int, Times] = {}
        self.spent: Times = np.stack(sums, axis=1).astype(float).reshape(count, width, len(OWN_PARTS))

    def comparable(self, n: int) -> bool:
        """Whether another rank makes the same calls."""
        return int((self.ranks.alike == self.ranks.alike[n]).sum()) > 1

    def _others(self, n: int) -> Times:
        if n not in self.typical:
            alike = np.flatnonzero(self.ranks.alike == self.ranks.alike[n])
            self.typical[n] = np.asarray(np.median(self.spent[alike[alike != n]], axis=0))
        return self.typical[n]

    def excess(self, n: int) -> float:
        """Own time of the rank beyond the others', counted where it has more."""
        more = self.spent[n].sum(axis=1) - self._others(n).sum(axis=1)
        return float(np.maximum(more, 0).sum())

    def like_others(self, n: int, parts: tuple[str, ...]) -> Times:
        """Durations with some parts of one rank as the others have them."""
        target = self.spent.copy()
        chosen = [OWN_PARTS.index(p) for p in parts]
        target[n][:, chosen] = self._others(n)[:, chosen]
        return self._scaled(target)

    def balanced(self, parts: tuple[str, ...]) -> Times:
        """Durations with some parts of all ranks at the mean of those alike."""
        target = self.spent.copy()
        chosen = [OWN_PARTS.index(p) for p in parts]
        for one in np.unique(self.ranks.alike):
            mine = np.flatnonzero(self.ranks.alike == one)
            for part in chosen:
                target[mine, :, part] = self.spent[mine, :, part].mean(axis=0)
        return self._scaled(target)

    def _scaled(self, target: Times) -> Times:
        """Every piece's part stretched so that each cell's part takes its target; where it has none, its first piece
        takes it."""
        before = self.spent.reshape(-1, len(OWN_PARTS))
        wanted = target.reshape(-1, len(OWN_PARTS))
        factor = np.where(before > 0, wanted / np.maximum(before, 1e-9), 1.0)
        changed = self.ranks.duration.copy()
        changed[self.own] += (self.part * (factor[self.key] - 1)).sum(axis=1)
        added = np.where(before > 0, 0.0, wanted).sum(axis=1)
        keys, first = np.unique(self.key, return_index=True)
        changed[np.flatnonzero(self.own)[first]] += added[keys]
        return np.maximum(changed, 0.0)
