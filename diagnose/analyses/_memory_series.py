"""Memory figures among the metrics of a run: allocated, reserved, used on the device, and peaks, in bytes per step;
and the resident memory of the process on its host.

A metric counts only if its name says what it is and in which unit; `gb` is 10^9 bytes, `gib` 2^30. Others are left.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import NO_RANK, Ints, codes, dictionary, integers

_UNITS = {"gib": 1 << 30, "gb": 10**9, "mib": 1 << 20, "mb": 10**6, "kib": 1 << 10, "kb": 10**3, "bytes": 1, "b": 1}
_UNIT = re.compile(r"[\W_](gib|gb|mib|mb|kib|kb|bytes|b)\W*$")
_COUNTER = re.compile(r"(allocated|reserved)_bytes_all_(current|peak)$")
"""Keys of torch.cuda.memory_stats() say the unit in the middle."""
_HOST = re.compile(r"(?:cpu|host)\w*mem|(?:^|_)rss(?:_|$)|resident")
_WHAT = (
    ("peak_allocated", r"(max|peak)\w*alloc|alloc\w*(max|peak)"),
    ("peak_reserved", r"(max|peak)\w*(reserved|cached)|(reserved|cached)\w*(max|peak)"),
    ("used", r"(gpu|device|nvidia|cuda)\w*used|mem\w*used|used\w*mem"),
    ("allocated", r"allocated|mem\w*alloc"),
    ("reserved", r"reserved|cached_mem|mem\w*cached"),
)  # fmt: skip
KINDS = tuple(name for name, _ in _WHAT)
"""Figures of the device."""


class Track(NamedTuple):
    """One figure of one rank over steps, in order: step numbers and bytes."""

    rank: int | None
    kind: str
    step: Ints
    size: Ints


def kind_of(metric: str) -> tuple[str, int] | None:
    """Which figure a metric is, and bytes per unit; None where it is none or its unit is not said."""
    name = metric.strip().lower().replace("/", "_").replace(".", "_").replace("-", "_")
    name = _COUNTER.sub(r"\2_\1_bytes", name)
    unit = _UNIT.search(name)
    if unit is None:
        return None
    if _HOST.search(name) and not re.search(r"count|ratio|percent|available|free|total", name):
        return "host", _UNITS[unit[1]]
    kind = next((k for k, pattern in _WHAT if re.search(pattern, name)), None)
    return None if kind is None or re.search(r"count|retries|ratio|percent|cpu|host", name) else (kind, _UNITS[unit[1]])


def tracks(series: pa.Table | None, kinds: tuple[str, ...] = KINDS) -> list[Track]:
    """Memory figures of these kinds per rank, steps ascending; of several metrics of one kind the first."""
    if series is None or not series.num_rows:
        return []
    names = dictionary(series["metric"])
    wanted = {number: kind for number, name in enumerate(names) if (kind := kind_of(name)) and kind[0] in kinds}
    if not wanted:
        return []
    code = codes(series["metric"])
    ranks, steps = integers(series["rank"], NO_RANK), integers(series["step"], -1)
    values = np.asarray(series["value"].fill_null(np.nan), dtype=np.float64)
    found: dict[tuple[int, str], Track] = {}
    for number, kind in wanted.items():
        mine = np.flatnonzero((code == number) & np.isfinite(values) & (steps >= 0))
        mine = mine[np.lexsort((steps[mine], ranks[mine]))]
        for rows in np.split(mine, np.flatnonzero(np.diff(ranks[mine])) + 1) if len(mine) else []:
            rank = int(ranks[rows[0]])
            size = np.rint(values[rows] * kind[1]).astype(np.int64)
            known = None if rank == NO_RANK else rank
            found.setdefault((rank, kind[0]), Track(known, kind[0], steps[rows], size))
    return [found[key] for key in sorted(found)]
