"""What a paired comparison of blocks says: the median difference and how far chance alone could move it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RESAMPLES = 4000
LEAST_PAIRS = 8


class Interval(NamedTuple):
    """Cost of the hook as a share of a step without it."""

    middle_ratio: float
    low_ratio: float
    high_ratio: float
    pairs_count: int
    step_ns: int
    """Typical step without the hook."""


def of_blocks(blocks: list[int]) -> Interval | None:
    """95 % bootstrap interval of the median over pairs (with, without), where each pair is in turns.

    None for fewer than eight pairs. Every second pair is read backwards in time by taking each block against the mean
    of its two neighbours, so that a drift of the job cancels.
    """
    values = np.array(blocks, np.float64)
    muted = np.arange(1, len(values) - 1, 2)
    if len(muted) < LEAST_PAIRS:
        return None
    with_hook = (values[muted - 1] + values[muted + 1]) / 2
    share = with_hook / values[muted] - 1
    drawn = np.random.default_rng(0).integers(0, len(share), (RESAMPLES, len(share)))
    low, high = np.quantile(np.median(share[drawn], axis=1), [0.025, 0.975])
    return Interval(float(np.median(share)), float(low), float(high), len(share), int(np.median(values[muted])))
