"""From who asked for memory and how long it lived to the part of training it served.

Evidence of the asker comes first; life time settles what it leaves open. Allocated in backward: a gradient if alive
when the next forward or optimizer begins, else a temporary, which belongs to the activations. In a trace, what is made
before the first backward and never freed are the parameters. An unknown allocation that is older than the recording
and has the size of an optimizer state is a parameter (Adam keeps two states of each parameter's size).
"""

from __future__ import annotations

import numpy as np

from diagnose.analyses._columns import Flags, Ints
from diagnose.analyses._memory_stacks import CLASSES
from diagnose.analyses._replay import Lives

PARTS = ("parameters", "gradients", "optimizer", "activations", "comm_buffers", "unknown")
_OF = {name: i for i, name in enumerate(PARTS)}
_FROM_CLASS = {
    "none": ("unknown", "nothing tells"),
    "comm": ("comm_buffers", "allocated by communication"),
    "recompute": ("activations", "allocated by recomputation"),
    "optimizer": ("optimizer", "allocated by the optimizer"),
    "backward": ("activations", "temporary of backward"),
    "init": ("parameters", "allocated while the model was built"),
    "forward": ("activations", "allocated in forward"),
    "parameters": ("parameters", "named like parameters"),
    "gradients": ("gradients", "accumulated gradient"),
    "optimizer_word": ("optimizer", "named like optimizer state"),
    "activations": ("activations", "named like activations"),
}
_LEFT = ("outlives backward", "alive at a cut in backward", "made before the first backward, never freed",
         "as large as an optimizer state", "older than the recording")  # fmt: skip
LEAST_STATE_BYTES = 1 << 12
"""Smaller allocations have too many namesakes for their size to tell anything."""
Roles = tuple[Ints, np.ndarray, list[str], Ints]


def roles(found: Lives, kind: Ints, confidence: np.ndarray, optimizer_starts: Ints, n: int, *, traced: bool) -> Roles:
    """Part (index in PARTS), confidence, texts of evidence, and the index of each life's text."""
    reasons = [reason for _, reason in _FROM_CLASS.values()] + list(_LEFT)
    part = np.array([_OF[p] for p, _ in _FROM_CLASS.values()])[kind]
    reason, sure = kind.copy(), confidence.astype(np.float64).copy()
    code = CLASSES.index

    def settle(chosen: Flags, to: str, why: str, confidence_ratio: float) -> None:
        part[chosen], reason[chosen], sure[chosen] = _OF[to], reasons.index(why), confidence_ratio

    backward = kind == code("backward")
    others = np.isin(kind, [code(c) for c in ("forward", "optimizer", "init")]) & (found.event >= 0)
    marks = np.union1d(found.event[others], optimizer_starts)
    following = np.append(marks, n)[np.searchsorted(marks, found.start, side="right")]
    settle(backward & (following < n) & (found.end > following), "gradients", "outlives backward", 0.8)
    settle(backward & (following >= n) & (found.end >= n), "gradients", "alive at a cut in backward", 0.5)
    if traced and backward.any():
        first = found.event[backward & (found.event >= 0)].min(initial=n)
        steps = optimizer_starts[optimizer_starts > first]
        lasting = found.end > (steps[0] if len(steps) else n - 1)
        early = np.isin(kind, [code("forward"), code("none")]) & (found.start >= 0) & (found.start < first) & lasting
        settle(early, "parameters", "made before the first backward, never freed", 0.7)
    unknown = (kind == 0) & (part == _OF["unknown"])
    settle(unknown & (found.start < 0), "unknown", "older than the recording", 0.0)
    for to, share in (("parameters", 1), ("gradients", 2)):
        like = _sized_like_states(found, part, (part == _OF["unknown"]) & (found.start < 0), share)
        settle(like, to, "as large as an optimizer state", 0.5 if to == "parameters" else 0.4)
    return part, sure, reasons, reason


def _sized_like_states(found: Lives, part: Ints, candidates: Flags, share: int) -> Flags:
    """Candidates as large as lasting optimizer states, at most half as many of a size, those alive longest first.

    `share` 1 takes only what is alive at the end (parameters never go), 2 anything.
    """
    last = found.end.max(initial=0)
    lasting = (part == _OF["optimizer"]) & (found.end >= last) & (found.size >= LEAST_STATE_BYTES)
    result = np.zeros(len(candidates), dtype=bool)
    sizes, counts = np.unique(found.size[lasting], return_counts=True)
    rows = np.flatnonzero(candidates & np.isin(found.size, sizes) & ((found.end >= last) | (share > 1)))
    if not len(rows):
        return result
    rows = rows[np.lexsort((-found.end[rows], found.size[rows]))]
    size = found.size[rows]
    nth = np.arange(len(rows)) - np.searchsorted(size, size)
    result[rows[nth < np.maximum(counts[np.searchsorted(sizes, size)] // 2, 1)]] = True
    return result
