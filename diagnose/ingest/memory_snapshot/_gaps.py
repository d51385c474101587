"""What an allocator history lacks: frees of blocks it never saw made, blocks made twice, blocks that vanished.

The history is a ring: long jobs lose its beginning, and recording can begin late. A free whose allocation was before
the recording is normal then; it tells that a replay from zero would go below zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Gaps(NamedTuple):
    """How often the history contradicts a complete one; `blocks_count` counts its allocations and frees."""

    blocks_count: int
    freed_count: int
    repeated_count: int
    older_count: int

    @property
    def gaps_count(self) -> int:
        """All of them."""
        return self.freed_count + self.repeated_count + self.older_count

    @property
    def words(self) -> str:
        """The counts in words."""
        return (
            f"{self.freed_count:,} frees without an allocation, {self.repeated_count:,} allocations without a free "
            f"between, {self.older_count:,} live blocks older than the history"
        )


def gaps_in_history(history: dict[str, pa.Array], blocks: dict[str, pa.Array]) -> Gaps:
    """Compare the history with itself and with the blocks at its end; per device and address."""
    made = np.asarray(pc.equal(history["action"], "alloc").fill_null(False), dtype=bool)
    freed = np.asarray(pc.is_in(history["action"], pa.array(["free", "free_completed"])), dtype=bool)
    rows = np.flatnonzero(made | freed)
    address = np.asarray(history["address"].fill_null(0), dtype=np.uint64)[rows]
    device = np.asarray(history["device"], dtype=np.int64)[rows]
    order = np.lexsort((rows, address, device))
    address, device, is_made = address[order], device[order], made[rows][order]
    same = np.zeros(len(rows), dtype=bool)
    same[1:] = (address[1:] == address[:-1]) & (device[1:] == device[:-1])
    before = np.zeros(len(rows), dtype=bool)
    before[1:] = is_made[:-1] & same[1:]  # alive by the history before this event
    active = np.asarray(pc.starts_with(blocks["state"].cast(pa.string()), "active").fill_null(False), dtype=bool)
    live = np.asarray(blocks["address"].fill_null(0), dtype=np.uint64)[active]
    older = int((~np.isin(live, address[is_made])).sum())
    return Gaps(len(rows), int((~is_made & ~before).sum()), int((is_made & before).sum()), older)
