"""The operations of a pipeline job as arrays: whose they are, what they are, in which order each worker ran them.

A *cell* is one worker of the pipeline: a stage of one replica (where several ranks share a stage of a replica, each is
a cell). Cells, not GPUs, are what a replay moves: what tensor parallel ranks do to each other stays inside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers
from diagnose.schema.pipelines import PHASES

NO_RANK = np.iinfo(np.int32).min
"""Stands for a null; ranks that no evidence gives are small negative numbers."""
CODE = {name: number for number, name in enumerate(PHASES)}


class Work(NamedTuple):
    """One operation per place, sorted by step, cell and start; all arrays of one length but `steps`."""

    step: Ints  # dense
    cell: Ints  # dense
    stage: Ints
    lane: Ints  # dense: which copy of the pipeline
    rank: Ints  # as recorded; NO_RANK where there is none
    replica: Ints  # as recorded; -1 unknown
    chunk: Ints
    microbatch: Ints  # -1: none
    phase: Ints  # index in PHASES
    start: Ints
    end: Ints
    steps: Ints  # step numbers

    @property
    def place(self) -> Ints:
        """One number per step and cell."""
        return self.step * (int(self.cell.max(initial=0)) + 1) + self.cell

    @property
    def stages_count(self) -> int:
        """Pipeline stages."""
        return int(self.stage.max(initial=0)) + 1

    def rows(self, *phases: str) -> Ints:
        """Rows of any of the phases, in order."""
        return np.flatnonzero(np.isin(self.phase, [CODE[name] for name in phases]))

    def number(self, rows: Ints) -> Ints:
        """Place of each of `rows` (in order) among those of its step, cell and phase, from 0."""
        return counted(self.place[rows] * len(PHASES) + self.phase[rows])


def work_of(table: pa.Table) -> Work:
    """Operations of a table with the columns of `microbatches`; rows without step or stage are not in it."""
    known = table.filter(np.asarray(table["stage"].is_valid()) & np.asarray(table["step"].is_valid()))
    stage, rank = integers(known["stage"]), integers(known["rank"], NO_RANK)
    replica, start = integers(known["replica"], -1), integers(known["ts_ns"])
    names = dictionary(known["phase"])
    phase = np.array([CODE.get(name, CODE["other"]) for name in names], np.int64)[codes(known["phase"])]
    lane = _lanes(stage, replica, rank)
    steps, step = np.unique(integers(known["step"]), return_inverse=True)
    cell = np.unique(stage * (int(lane.max(initial=0)) + 1) + lane, return_inverse=True)[1]
    end = start + integers(known["dur_ns"])
    order = np.lexsort((integers(known["seq"], 0), start, cell, step))
    columns = (step, cell, stage, lane, rank, replica, np.maximum(integers(known["chunk"]), 0),
               integers(known["microbatch"], -1), phase, start, end)  # fmt: skip
    return Work._make([*(np.asarray(column, np.int64)[order] for column in columns), steps])


def _lanes(stage: Ints, replica: Ints, rank: Ints) -> Ints:
    """Copy of the pipeline of each row: its replica, and its place among the ranks of that stage and replica."""
    copy, who = (np.unique(column, return_inverse=True)[1] for column in (replica, rank))  # unknown ranks are negative
    copies, people = int(copy.max(initial=0)) + 1, int(who.max(initial=0)) + 1
    owners, index = np.unique((stage * copies + copy) * people + who, return_inverse=True)
    bases = owners // people
    among = counted(bases)
    key = (bases % copies) * (int(among.max(initial=0)) + 1) + among
    return np.asarray(np.unique(key, return_inverse=True)[1][index], np.int64)


def counted(code: Ints) -> Ints:
    """Place of each value among the equal values before it, from 0."""
    if not len(code):
        return np.zeros(0, np.int64)
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    place = np.arange(len(code)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    result = np.empty(len(code), np.int64)
    result[order] = place
    return result


def links(code: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Pairs (row, next row) within runs of equal `code`; `rows` in the order wanted."""
    order = np.argsort(code, kind="stable")
    ordered = rows[order]
    same = code[order][1:] == code[order][:-1]
    return ordered[:-1][same], ordered[1:][same]


def joined(left: Ints, left_rows: Ints, right: Ints, right_rows: Ints) -> tuple[Ints, Ints]:
    """Rows whose keys are equal; keys of `left` are distinct, those of `right` need not be."""
    if not len(left):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(left)
    at = np.minimum(np.searchsorted(left[order], right), len(left) - 1)
    found = left[order][at] == right
    return left_rows[order][at[found]], right_rows[found]
