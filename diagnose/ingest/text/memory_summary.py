"""The table that `torch.cuda.memory_summary()` prints: counters of the caching allocator, rounded to its unit.

Source: torch/cuda/memory.py (memory_summary), 1.4 to 2.13; "Requested memory" since 2.1.
"""

from __future__ import annotations

import re
from typing import Any

from diagnose.ingest._allocator_stats import tables_of
from diagnose.ingest.text._lines import Lines, rank_of
from diagnose.schema import Tables

_NAMES = {
    "Allocated memory": ("allocated_bytes", "peak_allocated_bytes"),
    "Active memory": ("active_bytes", None),
    "Requested memory": ("requested_bytes", None),
    "GPU reserved memory": ("reserved_bytes", "peak_reserved_bytes"),
    "Non-releasable memory": ("inactive_split_bytes", None),
}
MARK = rf"CUDA memory summary, device ID|CUDA OOMs: +\d+ +\||\| (?:{'|'.join(_NAMES)}) +\|"
_TITLE = re.compile(r"CUDA memory summary, device ID (\d+)")
_TROUBLE = re.compile(r"CUDA OOMs: +(\d+) +\| +cudaMalloc retries: +(\d+)")
_ROW = re.compile(rf"\| ({'|'.join(_NAMES)}) +\| +(\d+) ([KMGTPE]?i?B) +\| +(\d+) ([KMGTPE]?i?B) +\|")


class Reader:
    """Collects the tables of one document."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def feed(self, lines: Lines) -> int:
        """Read lines; rows of a table whose title is missing belong to none."""
        return sum(self._line(text) for _, text in lines.rows())

    def _line(self, text: str) -> bool:
        if title := _TITLE.search(text):
            row = {"device": int(title[1]), "rank": rank_of(text), "source": "memory_summary"}
            self._rows.append(row)
            return True
        if not self._rows:
            return False
        if trouble := _TROUBLE.search(text):
            self._rows[-1] |= {"ooms_count": int(trouble[1]), "retries_count": int(trouble[2])}
        elif found := _ROW.search(text):
            now, peak = _NAMES[found[1]]
            self._rows[-1].setdefault(now, _bytes(found[2], found[3]))
            if peak:
                self._rows[-1].setdefault(peak, _bytes(found[4], found[5]))
        return True

    def tables(self, path: str) -> Tables:
        """`allocator_stats`, and retries among `log_events`."""
        rows = [row for row in self._rows if "allocated_bytes" in row]
        return tables_of(rows) if rows else {}


def _bytes(number: str, unit: str) -> int:
    return int(number) << (10 * "BKMGTPE".index(unit[0]))
