"""How unequal counts are: measures of load over experts (or ranks), row by row of a matrix.

All are of one row's counts n_1..n_E with mean m. `imbalance` is max / m: 1 is even, E is everything on one. For experts
that work side by side it is also how much longer the busiest takes than a balanced one. Small counts are unequal by
chance: `chance_imbalance` is what an even router would show. Rows without any count give NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def imbalance(counts: Floats) -> Floats:
    """Largest over mean of every row of (rows, experts)."""
    mean = counts.mean(axis=1)
    return _over(counts.max(axis=1), mean)


def variation(counts: Floats) -> Floats:
    """Coefficient of variation: standard deviation over mean."""
    mean = counts.mean(axis=1)
    return _over(counts.std(axis=1), mean)


def entropy(counts: Floats) -> Floats:
    """Shannon entropy of the shares over that of an even load, 0 to 1; 1 for a single expert."""
    total = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, total, out=np.zeros_like(counts, dtype=np.float64), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    most = np.log(counts.shape[1])
    found = -(share * logs).sum(axis=1) / most if most else np.ones(len(counts))
    known: Floats = np.where(total[:, 0] > 0, found, np.nan)
    return known


def gini(counts: Floats) -> Floats:
    """Gini coefficient: 0 is even, 1 - 1/E is everything on one expert."""
    ordered = np.sort(counts, axis=1)
    number = counts.shape[1]
    weight = 2 * np.arange(1, number + 1) - number - 1
    total = ordered.sum(axis=1)
    return _over((ordered * weight).sum(axis=1), number * total)


def _over(above: Floats, below: Floats) -> Floats:
    """Quotient; NaN where nothing was counted."""
    found: Floats = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return found


def chance_imbalance(mean: Floats | float, number: int) -> Floats:
    """Largest over mean that an even router shows by chance: 1 + sqrt(2 ln E / m), the extreme of E normal draws."""
    spread = np.sqrt(2 * np.log(max(number, 2)) / np.maximum(np.asarray(mean, np.float64), 1e-9))
    found: Floats = 1 + spread
    return found
