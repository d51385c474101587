"""Marks in traces that say which micro-batch a pipeline stage worked on, and when the host did it.

Known: torch.distributed.pipelining (`PP:1F3`: stage 1, forward, micro-batch 3; `Forward 3`), its frames and those of
Megatron-LM and DeepSpeed where Python stacks were recorded (`schedules.py(205): forward_step`), and ranges that name
the pass: `forward_step`, `stage 1 backward mb 3`. Where several kinds are there, the first of this list that a rank has
counts. A mark is the host's: what the device did for it is what was launched in it. `PP:` stages are numbered over
chunks: a rank's lowest is its own stage, its others are chunks.
Sources: torch/distributed/pipelining/schedules.py; Megatron-LM core/pipeline_parallel/schedules.py; DeepSpeed
runtime/pipe/engine.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers

_TORCH = re.compile(r"PP:(?P<stage>\d+)(?P<phase>[FBIW])(?P<mb>\d+)")
_TORCH_BOTH = re.compile(r"PP:\((\d+)F(\d+);(\d+)([BI])(\d+)\)OVERLAP_F_B")
_NUMBERED = re.compile(r"(?P<phase>Forward|Backward) (?P<mb>\d+)")
_FRAMES = re.compile(
    r"(?:.*[/\\])?(?:"
    r"torch[/\\]distributed[/\\]pipelining[/\\]stage\.py\(\d+\): (?P<torch>forward|backward|backward_weight)_one_chunk"
    r"|pipeline_parallel[/\\]schedules\.py\(\d+\): (?P<megatron>forward|backward)_step"
    r"|deepspeed[/\\]runtime[/\\]pipe[/\\]engine\.py\(\d+\): _exec_(?P<deepspeed>forward|backward)_pass)"
)
_RANGES = re.compile(
    r"(?:(?:pp|pipeline|pipe)?[ _:]*stage[ _:=]*(?P<stage>\d+)[ _:/,-]+)?(?:chunk[ _:=]*(?P<chunk>\d+)[ _:/,-]+)?"
    r"(?P<phase>forward|fwd|backward|bwd|wgrad|weight)(?:[-_ ](?:step|pass|compute|microbatch))?"
    r"(?:[ _:/,#-]+(?:mb|microbatch|micro[-_]batch)?[ _:=#]*(?P<mb>\d+))?",
    re.IGNORECASE,
)
_PHASES = {
    "f": "forward", "b": "backward", "i": "backward_input", "w": "weight", "forward": "forward", "fwd": "forward",
    "backward": "backward", "bwd": "backward", "wgrad": "weight", "weight": "weight", "backward_weight": "weight",
}  # fmt: skip
UNKNOWN = -1


class Said(NamedTuple):
    """What a name says: how it is trusted (0 best), phase, stage over chunks, chunk, micro-batch (-1: not told)."""

    trust: int
    phase: str
    stage: int = UNKNOWN
    chunk: int = UNKNOWN
    microbatch: int = UNKNOWN


class Marks(NamedTuple):
    """One place per mark, sorted by rank and start."""

    rank: Ints
    start: Ints
    end: Ints
    said: list[Said]

    def take(self, rows: Ints) -> Marks:
        """Only some marks."""
        return Marks(self.rank[rows], self.start[rows], self.end[rows], [self.said[i] for i in rows.tolist()])


def read_name(name: str) -> tuple[Said, ...]:
    """What a range or frame says of pipeline work: nothing, one thing, or two (a forward under a backward)."""
    if both := _TORCH_BOTH.fullmatch(name):
        ahead, behind = (int(both[i]) for i in (1, 3))
        forward = Said(0, "forward", ahead, UNKNOWN, int(both[2]))
        return forward, Said(0, _PHASES[both[4].lower()], behind, UNKNOWN, int(both[5]))
    if torch := _TORCH.fullmatch(name):
        return (Said(0, _PHASES[torch["phase"].lower()], int(torch["stage"]), UNKNOWN, int(torch["mb"])),)
    if numbered := _NUMBERED.fullmatch(name):
        return (Said(1, _PHASES[numbered["phase"].lower()], microbatch=int(numbered["mb"])),)
    if frame := _FRAMES.fullmatch(name):
        return (Said(2, _PHASES[next(g for g in frame.groups() if g)]),)
    if ranged := _RANGES.fullmatch(name):
        stage, chunk, microbatch = (int(ranged[g] or UNKNOWN) for g in ("stage", "chunk", "mb"))
        return (Said(3, _PHASES[ranged["phase"].lower()], stage, chunk, microbatch),)
    return ()


def find_marks(events: pa.Table) -> Marks | None:
    """Marks of all ranks, of the most trusted kind each rank has; None where no name is known."""
    kinds, names = dictionary(events["kind"]), dictionary(events["name"])
    said = {i: found for i, name in enumerate(names) if (found := read_name(name))}
    if not said:
        return None
    wanted = np.array([kind in ("annotation", "python") for kind in kinds])[codes(events["kind"])]
    named = np.zeros(len(names), bool)
    named[list(said)] = True
    name = codes(events["name"])
    rows = np.flatnonzero(wanted & named[name] & (integers(events["dur_ns"]) > 0))
    each = np.repeat(rows, [len(said[c]) for c in name[rows].tolist()])
    what = [s for c in name[rows].tolist() for s in said[c]]
    if not len(each):
        return None
    rank, start = integers(events["rank"])[each], integers(events["ts_ns"])[each]
    marks = Marks(rank, start, start + integers(events["dur_ns"])[each], what)
    marks = marks.take(np.lexsort((start, rank)))
    trust = np.array([s.trust for s in marks.said])
    best = {r: trust[marks.rank == r].min() for r in np.unique(marks.rank).tolist()}
    return _outermost(marks.take(np.flatnonzero(trust == [best[r] for r in marks.rank.tolist()])))


def _outermost(marks: Marks) -> Marks:
    """Without marks inside one of the same rank and phase (a wrapper and what it wraps)."""
    phases, phase = np.unique([s.phase for s in marks.said], return_inverse=True)
    kept = np.ones(len(marks.start), bool)
    for rank in np.unique(marks.rank):
        for code in range(len(phases)):
            mine = np.flatnonzero((marks.rank == rank) & (phase == code))
            reach = np.maximum.accumulate(marks.end[mine])
            kept[mine[1:]] = marks.end[mine[1:]] > reach[:-1]
    return marks.take(np.flatnonzero(kept))
