"""Split sizes of an uneven all-to-all: which share of a rank's bytes leaves it.

Writers cut lists of more than 30 sizes ("..."); from a cut list, or where the rank's place in the group is unknown,
nothing is told.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def sizes(text: str | None) -> list[int] | None:
    """The list, or None where it is absent, cut or empty."""
    if not text or "..." in text:
        return None
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return None
    whole = isinstance(found, list) and found and all(isinstance(v, int) and v >= 0 for v in found)
    return found if whole else None


def leaving_share(calls: pa.Table, members: pa.Table) -> NDArray[np.float64]:
    """Per call, bytes for other ranks over all bytes; NaN where unknown."""
    at: dict[tuple[int, str], int] = {}
    for row in members.select(["rank", "group", "ranks"]).to_pylist():
        if row["ranks"] and row["rank"] in row["ranks"]:
            at[row["rank"], row["group"]] = row["ranks"].index(row["rank"])
    known: dict[tuple[str, int], float] = {}
    result = np.full(calls.num_rows, np.nan)
    columns = (calls[name].to_pylist() for name in ("rank", "group", "in_splits"))
    for i, (rank, group, text) in enumerate(zip(*columns, strict=True)):
        place = at.get((rank, group))
        if place is not None and text is not None:
            if (text, place) not in known:
                known[text, place] = _leaving(sizes(text), place)
            result[i] = known[text, place]
    return result


def _leaving(split: list[int] | None, place: int) -> float:
    if split is None or place >= len(split) or not sum(split):
        return float("nan")
    return 1 - split[place] / sum(split)
